/** Digests of the platform, in the forms in which they are used here. */

export async function digest(
  of: string | BufferSource,
  algorithm: "SHA-256" | "SHA-1" = "SHA-256",
): Promise<Uint8Array> {
  const bytes = typeof of === "string" ? new TextEncoder().encode(of) : of;
  return new Uint8Array(await crypto.subtle.digest(algorithm, bytes));
}

export function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
