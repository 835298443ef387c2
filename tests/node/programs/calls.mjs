// What every client asks for, as tests/clients/programs/calls.py has it, and how a program tells what it got.

import { readFile } from "node:fs/promises";

export const calls = JSON.parse(await readFile(new URL("../../clients/programs/calls.json", import.meta.url)));
export const baseURL = process.env.WEIR_BASE_URL;
export const model = process.env.WEIR_MODEL;

// Makes the calls, one after another, and prints what each gave. `refusal` turns an error of the client into
// {status, code, message}, or into undefined if it is none.
export async function tell(made, refusal) {
  const found = {};
  for (const [name, call] of Object.entries(made)) {
    try {
      found[name] = await call();
    } catch (error) {
      found[name] = refusal(error);
      if (found[name] === undefined) throw error;
    }
  }
  console.log(JSON.stringify(found));
}
