/** What models cost, from a list that others keep: https://github.com/pydantic/genai-prices. It is large, so it is loaded when asked for. */
import type { Price } from "../src/model.ts";

/** Names of vendors there, where they are others. */
const providers: { [vendor: string]: string } = { "openai-chat": "openai", gemini: "google", bedrock: "aws" };

/** Prices by the names of models, "vendor/model"; undefined for what the list does not have. What runs offline costs nothing. */
export async function prices(): Promise<(name: string) => Price | undefined> {
  const { calcPrice } = await import("@pydantic/genai-prices");
  return (name) => {
    const cut = name.indexOf("/"), vendor = name.slice(0, cut), model = name.slice(cut + 1);
    if (vendor === "demo") return () => 0;
    const options = { providerId: providers[vendor] ?? vendor };
    const price: (...usage: Parameters<Price>) => number | undefined = ({ input, output, cached, written }) =>
      calcPrice(
        {
          input_tokens: input,
          output_tokens: output,
          // Parts of the input; some servers count more of them than there is.
          cache_read_tokens: Math.min(input, cached ?? 0),
          cache_write_tokens: Math.min(input - Math.min(input, cached ?? 0), written ?? 0),
        },
        model,
        options,
      )?.total_price;
    return price({ input: 1, output: 1 }) === undefined ? undefined : (usage) => price(usage)!;
  };
}
