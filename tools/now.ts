/** Date and time of day. */
import * as z from "zod";
import { defineTool, type Tool } from "../src/tool.ts";

/** The tool, reading the time from `clock`. */
export function nowFrom(clock: () => Date): Tool {
  return defineTool({
    name: "now",
    description: "Tells the present date, weekday and time of day.",
    parameters: z.object({
      time_zone: z.string().optional().describe("IANA name such as Europe/Oslo; UTC if left out"),
    }),
    replay: "safe",
    parallel: true,
    execute: ({ time_zone = "UTC" }) => moment(clock(), time_zone),
  });
}

export const now = nowFrom(() => new Date());

/** `2026-01-31T13:00:00+01:00 (Saturday, Europe/Oslo)` */
function moment(date: Date, timeZone: string): string {
  const part = Object.fromEntries(
    formatter(timeZone).formatToParts(date).map(({ type, value }) => [type, value]),
  );
  const offset = part.timeZoneName === "GMT" ? "Z" : part.timeZoneName!.replace("GMT", "");
  const day = `${part.year}-${part.month}-${part.day}`;
  return `${day}T${part.hour}:${part.minute}:${part.second}${offset} (${part.weekday}, ${timeZone})`;
}

function formatter(timeZone: string): Intl.DateTimeFormat {
  const two = "2-digit";
  try {
    return new Intl.DateTimeFormat("en-US", {
      timeZone,
      ...{ year: "numeric", month: two, day: two, hour: two, minute: two, second: two },
      ...{ weekday: "long", hourCycle: "h23", timeZoneName: "longOffset" },
    });
  } catch {
    throw new Error(`There is no time zone "${timeZone.slice(0, 80)}". Use an IANA name such as Europe/Oslo`);
  }
}
