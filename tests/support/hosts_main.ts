/** The service as main.ts runs it, with the tools of the hosts' tests. */
import "./hosts_tools.ts";
import { serve } from "../../main.ts";

if (import.meta.main) serve(Deno.env.toObject());
