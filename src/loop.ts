/**
 * The loop: turns until the model asks for nothing more (DESIGN §2). It keeps no state of its own: each round it looks at what the
 * transcript says of its frame and does the one thing that comes next, so going on after a crash and going on after a turn are the same.
 *
 * L1. What a round decides is written in one commit before anything follows from it.
 * L2. A run's `end` and a frame's `return` are written only together with the knowledge that no mail is left, or with a successor for it.
 */
import { dispatch } from "./dispatch.ts";
import { type Returned, root } from "./entry.ts";
import { boundary, conclude, limit, type Loop, mailGoesFirst, steering } from "./outcome.ts";
import { maxIterations } from "./run.ts";
import type { Take } from "./store.ts";
import type { Frame } from "./frame.ts";
import { turn } from "./turn.ts";

/** Runs a frame to its end. The run's own loop ends with its slice, so of that this never returns. */
export async function loop(it: Loop): Promise<Returned> {
  for (;;) {
    const { transcript, run } = it.journal, at = transcript.frame(it.frame);
    if (!at || transcript.run !== run) await begin(it);
    else if (at.returned) return at.returned;
    else if (!at.message) await turn(it, at);
    else if (at.calls.some((call) => call.state !== "done")) await dispatch(it, at);
    else await follow(it, at);
  }
}

/** The first commit of a run takes its prompt, and before it the mail that an earlier run left. */
async function begin({ journal, frame }: Loop): Promise<void> {
  await journal.commit(() => ({
    change: {
      append: [
        journal.entry("start", root, { at: journal.now() }),
        journal.entry("turn", root, {}, { n: 1 }),
      ],
      count: { iterations: 1 },
    },
    take: [{ kinds: ["steering", "follow_up"], all: true }],
    into: { frame, turn: 1 },
  }));
}

/** After a message that calls nothing, or whose results end the loop: what it comes to, unless mail came. */
async function follow(it: Loop, at: Frame): Promise<void> {
  await it.journal.commit(() => {
    if (!mailGoesFirst(it, at)) return { quiet: conclude(it, at) };
    if (at.turn >= maxIterations(it.settings)) return { change: limit(it, at) };
    const looks: Take[] = [steering(it.settings)];
    if (it.frame === root) looks.push({ kinds: ["follow_up"], all: it.settings.followUpMode === "all" });
    return { quiet: boundary(it, at), take: looks, into: { frame: it.frame, turn: at.turn + 1 } };
  });
}
