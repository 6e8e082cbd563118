/** The models of a deployment, by the keys in its environment. A new vendor is one file and one line here. */
import type Anthropic from "@anthropic-ai/sdk";
import type OpenAI from "openai";
import { InputError } from "../src/errors.ts";
import type { Model, Models } from "../src/model.ts";
import { aiSdk } from "./ai_sdk.ts";
import { anthropic } from "./anthropic.ts";
import { bedrock, type BedrockOptions } from "./bedrock.ts";
import { demo } from "./demo.ts";
import { gemini } from "./gemini.ts";
import { openai } from "./openai.ts";
import { openaiChat } from "./openai_chat.ts";
import { prices } from "./prices.ts";

export { aiSdk, anthropic, bedrock, demo, gemini, openai, openaiChat, prices };

/** Where only a key is set: small enough to pay for mistakes, good enough at calling tools. */
const openaiDefault = "gpt-5.4-mini" satisfies OpenAI.ChatModel;
const anthropicDefault = "claude-haiku-4-5" satisfies Anthropic.Model;
const geminiDefault = "gemini-3.8-flash";

type Options = BedrockOptions & { apiKey: string };

interface Vendor {
  make(name: string, options: Options): Model;
  /** Variables of the environment: those that have to be set, those that may be, and the vendor's address. */
  keys: Partial<Record<keyof Options, string>>;
  more?: Partial<Record<keyof Options, string>>;
  baseURL: string;
  /** The model taken if this is the first vendor with a key; absent: never taken by itself. */
  default?: string;
}

const vendors: Record<string, Vendor> = {
  "openai": {
    make: openai,
    keys: { apiKey: "OPENAI_API_KEY" },
    baseURL: "OPENAI_BASE_URL",
    default: openaiDefault,
  },
  "anthropic": {
    make: anthropic,
    keys: { apiKey: "ANTHROPIC_API_KEY" },
    baseURL: "ANTHROPIC_BASE_URL",
    default: anthropicDefault,
  },
  "gemini": {
    make: gemini,
    keys: { apiKey: "GEMINI_API_KEY" },
    baseURL: "GEMINI_BASE_URL",
    default: geminiDefault,
  },
  "openai-chat": { make: openaiChat, keys: { apiKey: "OPENAI_API_KEY" }, baseURL: "OPENAI_BASE_URL" },
  // Never by itself: many have AWS's keys around for other things.
  "bedrock": {
    make: bedrock,
    keys: {
      region: "AWS_REGION",
      accessKeyId: "AWS_ACCESS_KEY_ID",
      secretAccessKey: "AWS_SECRET_ACCESS_KEY",
    },
    more: { sessionToken: "AWS_SESSION_TOKEN" },
    baseURL: "BEDROCK_BASE_URL",
  },
};

/**
 * Models named "vendor/model". The default is PAWL_MODEL, else that of the first vendor with a key, else `demo/rules`, which needs none.
 * `get` throws InputError for anything else; the message says what to set.
 */
export function modelFromEnv(env: Record<string, string | undefined>): Models {
  const keyed = Object.entries(vendors).find(([, vendor]) =>
    vendor.default && Object.values(vendor.keys).every((key) => env[key])
  );
  return {
    default: env.PAWL_MODEL || (keyed ? `${keyed[0]}/${keyed[1].default}` : demo.name),
    prices,
    get(name) {
      if (name === demo.name) return demo;
      const cut = name.indexOf("/");
      const vendor = Object.hasOwn(vendors, name.slice(0, cut)) ? vendors[name.slice(0, cut)] : undefined;
      if (!vendor || cut === name.length - 1) throw new InputError("bad_input", unknown(name));
      const absent = Object.values(vendor.keys).filter((key) => !env[key]);
      if (absent.length) {
        throw new InputError("bad_input", `The model "${name}" is not set up: set ${absent.join(", ")}`);
      }
      const baseURL = env[vendor.baseURL] || undefined;
      // "localhost:8080" is a URL too, of the protocol "localhost:".
      if (baseURL && !(/^https?:/.test(baseURL) && URL.canParse(baseURL))) {
        throw new InputError(
          "bad_input",
          `${vendor.baseURL}: expected a URL that begins with http:// or https://`,
        );
      }
      const options = Object.entries({ ...vendor.keys, ...vendor.more })
        .map(([option, variable]) => [option, env[variable] || undefined]);
      return vendor.make(name, { ...Object.fromEntries(options), baseURL });
    },
  };
}

function unknown(name: string): string {
  const known = [...Object.keys(vendors).map((vendor) => `${vendor}/…`), demo.name].join(", ");
  return `There is no model ${
    JSON.stringify(name.slice(0, 80))
  }: set PAWL_MODEL or "model" to one of ${known}`;
}
