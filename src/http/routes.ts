/** The routes of the HTTP face, each a thin sentence over one verb. */
import * as z from "zod";
import type { Clock } from "../clock.ts";
import type { MailKind } from "../entry.ts";
import { isActive } from "../run.ts";
import type { Verbs } from "../verbs.ts";
import { type Route, route, whole } from "./route.ts";
import * as schema from "./schema.ts";
import { eventStream } from "./sse.ts";
import {
  acceptedOut,
  answerIn,
  contentIn,
  mailOut,
  menuOut,
  messageOut,
  runOut,
  settingsIn,
  startIn,
} from "./wire.ts";

// What a run's id is made of is the verbs' matter: one that cannot exist is 404, as one that does not.
const ofRun = z.strictObject({ id: z.string().meta({ description: "Id of a run" }) });
const ofThread = z.strictObject({ id: schema.ThreadId });
const after = z.string().min(1).optional();
const afterPage = after.meta({ description: "`next` of the page before" });
const limit = whole(1, 200, "How many at most");

export function routes(
  verbs: Verbs,
  { clock, onError }: { clock: Clock; onError(error: unknown): void },
): readonly Route[] {
  return [
    route({
      name: "startRun",
      method: "post",
      path: "/runs",
      summary: "Start a run, or give its active run's thread a message",
      body: schema.StartRun,
      keyed: true,
      out: { statuses: { 202: "Accepted, durably" }, schema: schema.Accepted },
      errors: ["conflict", "too_many"],
      async run({ tenant, body, key }) {
        const options = { ...startIn(body), ...(key ? { key } : {}) };
        const accepted = await verbs.start(tenant, contentIn(body.content), settingsIn(body), options);
        return { status: 202, body: acceptedOut(accepted), headers: { location: `/runs/${accepted.run}` } };
      },
    }),
    route({
      name: "listRuns",
      method: "get",
      path: "/runs",
      summary: "Runs, newest first",
      query: z.strictObject({
        status: schema.Status.optional(),
        limit: whole(1, 100, "How many at most; 20 by default"),
        after: afterPage,
      }),
      out: { statuses: { 200: "A page of runs" }, schema: schema.Runs },
      async run({ tenant, query: { limit = 20, ...query } }) {
        const { runs, next } = await verbs.runs(tenant, { ...query, limit });
        return { status: 200, body: { runs: runs.map(runOut), next } };
      },
    }),
    route({
      name: "getRun",
      method: "get",
      path: "/runs/{id}",
      summary: "A run as it is now, or once it has ended or waits",
      params: ofRun,
      query: z.strictObject({
        wait: whole(0, 60, "Answer when the run ends or waits, or after so many seconds"),
      }),
      out: { statuses: { 200: "The run" }, schema: schema.Run },
      errors: ["not_found"],
      async run({ tenant, params, query: { wait = 0 }, signal }) {
        const view = wait > 0
          ? await verbs.settled(tenant, params.id, wait * 1000, { signal: signal() })
          : await verbs.run(tenant, params.id);
        return { status: 200, body: runOut(view) };
      },
    }),
    route({
      name: "getRunMessages",
      method: "get",
      path: "/runs/{id}/messages",
      summary: "A run's messages, oldest first",
      params: ofRun,
      query: z.strictObject({
        after: afterPage,
        limit,
        frame: z.string().min(1).optional().meta({
          description: "A nested loop's messages; \".\" is the run's own",
        }),
      }),
      out: { statuses: { 200: "A page of messages" }, schema: schema.Messages },
      errors: ["not_found"],
      async run({ tenant, params, query }) {
        const { messages, next } = await verbs.messages(tenant, { run: params.id }, query);
        return { status: 200, body: { messages: messages.map(messageOut), next } };
      },
    }),
    route({
      name: "getThreadMessages",
      method: "get",
      path: "/threads/{id}/messages",
      summary: "A thread's messages, oldest first",
      params: ofThread,
      query: z.strictObject({ after: afterPage, limit }),
      out: { statuses: { 200: "A page of messages" }, schema: schema.Messages },
      errors: ["not_found"],
      async run({ tenant, params, query }) {
        const { messages, next } = await verbs.messages(tenant, { thread: params.id }, query);
        return { status: 200, body: { messages: messages.map(messageOut), next } };
      },
    }),
    route({
      name: "getRunEvents",
      method: "get",
      path: "/runs/{id}/events",
      summary: "A run's events as they happen; each frame's data is an EventData in one line of JSON",
      params: ofRun,
      query: z.strictObject({ after: after.meta({ description: "Continue after the event with this id" }) }),
      out: {
        statuses: {
          200: "Server-sent events. The stream ends after agent_end, and may end at any time: resume by id",
          204: "The run has ended and there is no event after the given one",
        },
        type: "text/event-stream",
      },
      errors: ["not_found"],
      async run({ tenant, params, query, headers }) {
        const { status } = await verbs.run(tenant, params.id);
        // A client that reconnects repeats its first URL; the header is the newer of the two.
        const after = headers.get("last-event-id") || query.after;
        return await eventStream(
          (signal) => verbs.events(tenant, params.id, { ...(after ? { after } : {}), signal }),
          { clock, over: after !== undefined && !isActive(status), onError },
        );
      },
    }),
    mail("steering", "steerRun", "Say something to the run while it works"),
    mail("follow_up", "followUpRun", "Say something that the run takes up when it is done"),
    route({
      name: "cancelRun",
      method: "post",
      path: "/runs/{id}/cancel",
      summary: "End a run now, finally; again for a cancelled run is no error",
      params: ofRun,
      body: schema.Nothing,
      keyed: true,
      out: { statuses: { 202: "The run is cancelled" }, schema: schema.Run },
      errors: ["not_found", "conflict"],
      async run({ tenant, params }) {
        return { status: 202, body: runOut(await verbs.cancel(tenant, params.id)) };
      },
    }),
    route({
      name: "answerToolCall",
      method: "post",
      path: "/runs/{id}/tool_results",
      summary: "Answer a call that waits: its result, or the decision on its approval",
      params: ofRun,
      body: schema.ToolAnswer,
      keyed: true,
      out: {
        statuses: { 202: "Accepted, durably", 200: "It was answered before; nothing changed" },
        schema: schema.Run,
      },
      errors: ["not_found", "conflict", "too_many"],
      async run({ tenant, params, body, key }) {
        const { repeat, run } = await verbs.resolve(
          tenant,
          params.id,
          body.tool_call_id,
          answerIn(body),
          key,
        );
        return { status: repeat ? 200 : 202, body: runOut(run) };
      },
    }),
    route({
      name: "deleteThread",
      method: "delete",
      path: "/threads/{id}",
      summary: "Delete a thread with its transcript and runs; an active run is cancelled with it",
      params: ofThread,
      out: { statuses: { 204: "It is gone" } },
      errors: ["not_found"],
      async run({ tenant, params }) {
        await verbs.delete(tenant, params.id);
        return { status: 204 };
      },
    }),
    route({
      name: "listTools",
      method: "get",
      path: "/tools",
      summary: "The tools that a run would get, and for each that it would not the layer that took it out",
      query: z.strictObject({ toolset: z.string().min(1).optional(), source: z.string().min(1).optional() }),
      out: { statuses: { 200: "The menu" }, schema: schema.Menu },
      async run({ query: { toolset, source } }) {
        const settings = { ...(toolset ? { toolset } : {}), ...(source ? { toolsSource: source } : {}) };
        return { status: 200, body: menuOut(await verbs.menu(settings)) };
      },
    }),
  ];

  function mail(kind: MailKind, name: string, summary: string): Route {
    return route({
      name,
      method: "post",
      path: kind === "steering" ? "/runs/{id}/steering" : "/runs/{id}/follow_ups",
      summary,
      params: ofRun,
      body: schema.Mail,
      keyed: true,
      out: { statuses: { 202: "Accepted, durably" }, schema: schema.MailAccepted },
      errors: ["not_found", "conflict", "too_many"],
      async run({ tenant, params, body, key }) {
        const accepted = await verbs.send(tenant, params.id, kind, contentIn(body.content), key);
        return { status: 202, body: mailOut(accepted) };
      },
    });
  }
}
