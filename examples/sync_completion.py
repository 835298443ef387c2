"""Completes a text in one synchronous call and prints each choice.

Usage: python examples/sync_completion.py [--base-url URL] [--model NAME] [--n CHOICES] [PROMPT]
"""

import argparse

import openai


def main() -> None:
    parser = argparse.ArgumentParser(description="Complete a text in one synchronous call.")
    parser.add_argument("--base-url", default="http://127.0.0.1:8080/v1", help="Weir's address with /v1 (%(default)s)")
    parser.add_argument("--model", default="default", help="a model that it serves (%(default)s)")
    parser.add_argument("--n", type=int, default=2, help="how many choices; some engines give only 1 (%(default)s)")
    parser.add_argument("prompt", nargs="?", default="A river begins")
    arguments = parser.parse_args()

    client = openai.OpenAI(base_url=arguments.base_url, api_key="none")
    answer = client.completions.create(
        model=arguments.model, prompt=arguments.prompt, n=arguments.n, temperature=0.7, max_tokens=40
    )
    for choice in answer.choices:
        print(f"[{choice.index}] {arguments.prompt}{choice.text}")
    if answer.usage is not None:
        print(f"{answer.usage.prompt_tokens} prompt tokens, {answer.usage.completion_tokens} completion tokens")


if __name__ == "__main__":
    main()
