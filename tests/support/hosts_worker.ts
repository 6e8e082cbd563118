/** The service as worker.ts runs it, with the tools of the hosts' tests. */
import "./hosts_tools.ts";

export { default } from "../../worker.ts";
