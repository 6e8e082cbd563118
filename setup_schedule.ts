/** Has QStash call the service's sweep every 15 minutes: once per deployment. Again, it changes nothing. */
import { type Environment, qstashFrom } from "./src/environment.ts";
import { FatalError } from "./src/errors.ts";
import { scheduleSweep } from "./src/queue/qstash.ts";

/** Answers what it did, in one line. Throws FatalError for settings that are missing or wrong. */
export async function setUpSchedule(env: Environment): Promise<string> {
  const qstash = qstashFrom(env);
  if (!qstash) {
    throw new FatalError(
      "setting",
      "QSTASH_TOKEN: it is missing; set it with both signing keys and PAWL_PUBLIC_URL",
    );
  }
  const { id, cron, destination, was } = await scheduleSweep(qstash);
  const does = { created: "Created", changed: "Changed", there: "Found" }[was];
  return `${does} schedule ${id}: POST ${destination} at ${cron}`;
}

if (import.meta.main) {
  try {
    // deno-lint-ignore no-console
    console.log(await setUpSchedule(Deno.env.toObject()));
  } catch (error) {
    if (!(error instanceof FatalError)) throw error;
    // deno-lint-ignore no-console
    console.error(error.message);
    Deno.exit(1);
  }
}
