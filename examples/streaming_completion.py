"""Streams a completion and prints its time to first token and its speed.

Usage: python examples/streaming_completion.py [--base-url URL] [--model NAME] [--max-tokens N] [PROMPT]
"""

import argparse
import time

import openai


def main() -> None:
    parser = argparse.ArgumentParser(description="Stream a completion and measure it.")
    parser.add_argument("--base-url", default="http://127.0.0.1:8080/v1", help="Weir's address with /v1 (%(default)s)")
    parser.add_argument("--model", default="default", help="a model that it serves (%(default)s)")
    parser.add_argument("--max-tokens", type=int, default=100, help="most tokens of the answer (%(default)s)")
    parser.add_argument("prompt", nargs="?", default="A river begins")
    arguments = parser.parse_args()

    client = openai.OpenAI(base_url=arguments.base_url, api_key="none")
    begun_s = time.perf_counter()
    first_s = last_s = None
    tokens = 0
    stream = client.completions.create(
        model=arguments.model,
        prompt=arguments.prompt,
        max_tokens=arguments.max_tokens,
        stream=True,
        stream_options={"include_usage": True},  # the count of tokens comes last, in a chunk without choices
    )
    for chunk in stream:
        for choice in chunk.choices:
            if choice.text:
                last_s = time.perf_counter()
                first_s = first_s or last_s
                print(choice.text, end="", flush=True)
        if chunk.usage is not None:
            tokens = chunk.usage.completion_tokens
    print()

    if first_s is None or last_s is None:
        print("The answer was empty.")
        return
    print(f"TTFT {1000 * (first_s - begun_s):.1f} ms")
    if tokens > 1 and last_s > first_s:
        # The first token ends the wait, so it is not counted in the time after it.
        print(f"{tokens} tokens, {(tokens - 1) / (last_s - first_s):.1f} tokens/s")
    else:
        print(f"{tokens} tokens, too few to tell a speed")


if __name__ == "__main__":
    main()
