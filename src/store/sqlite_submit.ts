/** The SQLite store's verbs for those who send: submit, and withdraw. Each runs inside a transaction of its caller's. */
import type { Delivery } from "../queue.ts";
import { isActive } from "../run.ts";
import type { Submission, Submitted } from "../store.ts";
import type { ThreadRow } from "./sqlite_tables.ts";
import { deliveryOf, type Threads } from "./sqlite_threads.ts";

/** What may wait for a run that is active. */
const mailLimit = { count: 64, bytes: 1_000_000 };

export function submit(threads: Threads, s: Submission): Submitted {
  const { tables, mailbox } = threads;
  const t = threads.find(s.thread);
  const seen = t && s.key && mailbox.seen(t, s.key.name);
  if (seen) {
    return seen.hash === s.key!.hash ? repeat(threads, t, seen.run, seen.message) : { is: "conflict" };
  }
  if (s.like !== undefined && !(t && tables.run(t, s.like))) return { is: "unknown" };
  const submitted = s.answer && t ? answer(threads, t, s, s.answer) : accept(threads, t, s);
  if (submitted.is === "ok" && s.key) {
    mailbox.remember(threads.find(s.thread)!, s.key.name, { hash: s.key.hash, ...submitted });
  }
  return submitted;
}

function repeat(threads: Threads, t: ThreadRow, run: string, message: string): Submitted {
  const status = threads.tables.run(t, run)?.status ?? t.status;
  const publish = t.run === run && threads.isUnheld(t) ? deliveryOf(t) : undefined;
  return { is: "repeat", run, message, status, started: false, ...(publish && { publish }) };
}

function accepted(t: ThreadRow, message: string, publish: Delivery | undefined): Submitted {
  return { is: "ok", run: t.run, message, status: t.status, started: false, ...(publish && { publish }) };
}

function answer(
  threads: Threads,
  t: ThreadRow,
  { like, due }: Submission,
  { path, entry }: NonNullable<Submission["answer"]>,
): Submitted {
  const call = t.run === like && isActive(t.status) ? threads.tables.call(t, path) : undefined;
  if (call?.startsWith("a")) return repeat(threads, t, t.run, "-");
  if (!call?.startsWith("w")) return { is: "closed" };
  threads.tables.setCall(t, path, "a" + call.slice(1));
  threads.tables.append(t, entry);
  const publish = threads.wake(t, due);
  threads.save(t);
  return accepted(t, "-", publish);
}

function accept(threads: Threads, found: ThreadRow | undefined, s: Submission): Submitted {
  const busy = found !== undefined && isActive(found.status);
  if (busy && s.ifBusy === "reject") return { is: "busy" };
  if (busy && s.ifBusy !== "interrupt") return wait(threads, found, s);

  const like = found && s.like !== undefined ? threads.tables.settings(found, s.like) : undefined;
  const settings = s.settings ?? like;
  if (settings === undefined) return { is: "unknown" };
  if (busy) threads.cancel(found, s.endBody ?? "{}");
  const t = found ?? threads.make(s.thread, s.incarnation, s.run);
  // What starts a run is never refused for mail left over from an earlier one: nothing could ever start here any more.
  if (s.mail) threads.mailbox.post(t, { ...s.mail, run: s.run, noted: 0 });
  threads.start(t, s.run, settings, s.due);
  threads.save(t);
  const { run, status } = t;
  return { is: "ok", run, message: s.mail?.id ?? "-", status, started: true, publish: deliveryOf(t) };
}

/** Mail for a run that is active. */
function wait(threads: Threads, t: ThreadRow, { mail, due }: Submission): Submitted {
  const { tables, mailbox } = threads;
  if (mail) {
    const { count, bytes } = mailbox.size(t);
    const size = new TextEncoder().encode(mail.body).length;
    if (count >= mailLimit.count || bytes + size > mailLimit.bytes) return { is: "full" };
    mailbox.post(t, { ...mail, run: t.run, noted: 1 });
    tables.append(t, `queued ${t.run} . 0 ${mail.id}\n${mail.note}`);
    if (mail.kind === "steering") threads.wake(t, due);
    threads.save(t);
  }
  // A wait that goes on needs no delivery now; any other ticket that nobody holds is published again.
  const publish = t.status !== "waiting" && threads.isUnheld(t) ? deliveryOf(t) : undefined;
  return accepted(t, mail?.id ?? "-", publish);
}

export function withdraw(threads: Threads, s: Submission): boolean {
  const { tables, mailbox } = threads;
  const t = threads.find(s.thread);
  // An answer is in the log, and mail that was taken too: seen by whoever reads it.
  const mail = t && s.mail && mailbox.find(t, s.mail.id);
  if (!mail) return false;
  const startedActive = !mail.noted && mail.run === t.run && isActive(t.status);
  if (startedActive && t.claimed) return false;

  mailbox.remove(t, mail.n);
  if (mail.noted) tables.append(t, `withdrawn ${mail.run} . 0 ${mail.id}\n{}`);
  if (s.key) mailbox.forget(t, s.key.name);
  // Others may have sent mail to the run meanwhile, and were told that it was accepted: then it stays.
  if (isActive(t.status) && !t.claimed && !mailbox.hasMailFor(t, t.run)) {
    const before = tables.undoRun(t);
    if (!before) {
      tables.removeThread(t.name);
      return true;
    }
    t.run = before.id;
    threads.rest(t, before.status);
  }
  threads.save(t);
  return true;
}
