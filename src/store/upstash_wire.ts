/** What scripts are given, and what they answer, as lists of plain values. */
import { FatalError } from "../errors.ts";
import type { Delivery } from "../queue.ts";
import type { Status } from "../run.ts";
import type {
  Change,
  Claimed,
  Commit,
  Committed,
  MailCounts,
  Reading,
  RunRecord,
  Submission,
  Submitted,
} from "../store.ts";
import type { Reply } from "./upstash_connection.ts";

/** Absent or empty: scripts see the difference. */
export function optional(text: string | undefined): string {
  return text === undefined ? "" : `=${text}`;
}

export function listed(items: string[] = []): string[] {
  return [String(items.length), ...items];
}

export function submissionOf({ mail, answer, key, ...s }: Submission): string[] {
  return [
    ...[s.run, s.incarnation, optional(s.settings), optional(s.like)],
    ...[mail?.kind ?? "", mail?.id ?? "-", mail?.body ?? "", mail?.note ?? ""],
    ...[optional(answer?.path), answer?.entry ?? "", optional(key?.name), key?.hash ?? ""],
    ...[s.ifBusy ?? "mail", s.endBody ?? "{}", String(s.due)],
  ];
}

export function submittedOf(thread: string, reply: Reply[]): Submitted {
  type Accepted = ["ok" | "repeat", string, string, Status, number, Reply[] | null];
  const [is, run, message, status, started, publish] = reply as Accepted;
  if (reply.length === 1) return { is } as Submitted;
  return { is, run, message, status, started: started === 1, ...publishing(thread, publish) };
}

export function claimedOf(delivery: Delivery, reply: Reply[]): Claimed {
  const { thread, incarnation, run, hop } = delivery;
  if (reply[0] !== "claimed") {
    const [is, next, until, token] = reply as ["nothing" | "busy", Reply[] | null, number, number];
    const publish = next ? { ...deliveryOf(thread, next), hop: hop + 1 } : undefined;
    if (is === "busy") return { is, publish: { ...publish!, at: until + 1000, behind: token } };
    return { is, ...(publish && { publish }) };
  }
  const [token, attempts, claims, from, length] = reply[1] as number[];
  const [, , settings, progress, open, counts, entries] = reply as //
  [string, number[], string, string, [string, string][], Counts, string[]];
  return {
    is: "claimed",
    lease: { thread, incarnation, token: token! },
    ...{ run, settings, progress, attempts: attempts!, claims: claims! },
    open: Object.fromEntries(open),
    ...signs(counts),
    ...{ from: from!, length: length!, entries },
  };
}

export function commitOf({ take = [], ...c }: Commit): string[] {
  return [
    ...[c.sequence, c.known, c.due].map(String),
    ...[c.advances ? "1" : "0", optional(c.head), ...changeOf(c.change)],
    ...(c.quiet ? ["1", ...changeOf(c.quiet)] : ["0"]),
    ...[String(take.length), ...take.flatMap(({ all, kinds }) => [all ? "1" : "0", kinds.join(" ")])],
  ];
}

function changeOf({ append, open = {}, close, progress, leave }: Change): string[] {
  const ending = leave && "ending" in leave ? leave : undefined;
  const wakeAt = leave && "wakeAt" in leave ? leave.wakeAt : undefined;
  return [
    ...[...listed(append), ...listed(Object.entries(open).flat()), ...listed(close), optional(progress)],
    ...[leave?.status ?? "", String(wakeAt ?? 0), ending?.ending ?? "", optional(ending?.successor)],
  ];
}

export function committedOf(thread: string, incarnation: string, c: Commit, reply: Reply[]): Committed {
  if (reply[0] === "lost") return { is: "lost" };
  if (reply[0] === "sequence") {
    const [, last, status] = reply as [string, number, Status];
    const next = status === "running" ? `expected ${last + 1}` : "which ended the slice";
    throw new FatalError(
      "sequence",
      `Commit ${c.sequence} to ${thread}: the last was ${last}, ${next}. A slice has one commit under way at a time`,
    );
  }
  const [is, outcome, counts, repeated, before, taken] = reply as [
    "ok",
    string,
    Counts,
    number,
    string[],
    string[],
  ];
  const [applied, ...publish] = outcome.split(" "), quiet = applied === "1";
  // What the sender wrote itself is not sent back to it.
  const own = repeated ? [] : [...c.change.append ?? [], ...(quiet && c.quiet?.append) || [], ...taken];
  return {
    ...{ is, quiet, ...publishing(thread, publish.length > 0 ? [incarnation, ...publish] : null) },
    ...signs(counts),
    entries: [...before, ...own],
  };
}

export function readingOf(run: string | undefined, reply: Reply[]): Reading {
  const [incarnation, length, current, steering, followUps, record, entries, live] = reply as //
  [
    string,
    number,
    string,
    number,
    number,
    (string | null)[] | null,
    string[],
    [number, number, string[]] | null,
  ];
  return {
    ...{ incarnation, length, current },
    ...(record && { run: recordOf(run ?? current, record) }),
    mail: { steering, followUps },
    entries,
    ...(live && { live: { base: live[0], skip: live[1], items: live[2] } }),
  };
}

function recordOf(id: string, [status, settings, progress, first, successor]: (string | null)[]): RunRecord {
  return {
    ...{ id, status: status as Status, settings: settings!, progress: progress!, first: Number(first) },
    ...(successor != null && { successor }),
  };
}

/** What scripts answer as {incarnation, run, ticket, wake}. */
export function deliveryOf(thread: string, [incarnation, run, ticket, wake]: Reply[]): Delivery {
  const at = Number(wake);
  return {
    ...{ thread, incarnation: incarnation as string, run: run as string, ticket: Number(ticket), hop: 0 },
    ...(at > 0 && { at }),
  };
}

function publishing(thread: string, delivery: Reply[] | null): { publish?: Delivery } {
  return delivery ? { publish: deliveryOf(thread, delivery) } : {};
}

/** Steering, follow-ups, and whether somebody watches. */
type Counts = [number, number, number];

export function signs([steering, followUps, watched]: Counts): { mail: MailCounts; watched: boolean } {
  return { mail: { steering, followUps }, watched: watched === 1 };
}
