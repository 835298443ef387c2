// What every client asks for, as tests/clients/programs/calls.py has it, and how a program tells what it got.

import { readFile } from "node:fs/promises";

export const calls = JSON.parse(await readFile(new URL("../../clients/programs/calls.json", import.meta.url)));
export const baseURL = process.env.WEIR_BASE_URL;
const models = process.env.WEIR_MODELS.split(",");

// Makes the calls, one after another, to each model, and prints what each gave. `refusal` turns an error of the client into
// {status, code, message}, or into undefined if it is none: then it is told whole, as `raised`.
export async function tell(made, refusal) {
  const told = {};
  for (const model of models) {
    told[model] = {};
    for (const [name, call] of Object.entries(made)) {
      try {
        told[model][name] = await call(model);
      } catch (error) {
        told[model][name] = refusal(error) ?? { raised: error.stack };
      }
    }
  }
  console.log(JSON.stringify(told));
}
