"""Names, units, labels and edges of what Weir counts and measures.

Labels come from the configuration or from a closed set; nothing that a client chose is a label value.
"""

from __future__ import annotations

from itertools import pairwise

from .histogram import DURATION, GAP, QUEUE, SMALL, TOKENS, TTFT
from .metrics_text import CounterFamily, Family, HistogramFamily, Room
from .worker_numbers import WorkerNumbers

PROMPT_TOKENS = (256, 1024, 4096, 16384, 65536)
"""Where prompts are told apart by their length."""
PROMPT_LENGTHS = (
    f"0-{PROMPT_TOKENS[0] - 1}",
    *(f"{least}-{beyond - 1}" for least, beyond in pairwise(PROMPT_TOKENS)),
    f"{PROMPT_TOKENS[-1]}+",
)
BATCH_INPUTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)


class Families:
    """The counters and distributions of one process.

    Args:
        room: For their label sets.
        workers: The numbers of all workers; None if this is the only process.

    Attributes:
        told: All of them, in the order of the exposition.
    """

    def __init__(self, room: Room, workers: WorkerNumbers | None) -> None:
        store = workers.own if workers is not None else None

        def counter(name: str, help: str, *labels: str) -> CounterFamily:
            return CounterFamily(name, help, labels, room, store)

        def histogram(
            name: str, help: str, edges: tuple[float, ...], *labels: str, exemplars: bool = False
        ) -> HistogramFamily:
            return HistogramFamily(name, help, labels, edges, room, store, exemplars=exemplars)

        self.requests = counter(
            "weir_requests_total", "Requests finished, by how they ended.", "pool", "model", "operation", "outcome"
        )
        self.duration = histogram(
            "weir_request_duration_seconds", "From the body read whole to the last byte handed over.", DURATION,
            "pool", "model", "operation", "outcome", exemplars=True,
        )  # fmt: skip
        self.ttft = histogram(
            "weir_time_to_first_token_seconds",
            "From the body read whole to the first chunk with output handed over; streams only.",
            TTFT, "pool", "model", exemplars=True,
        )  # fmt: skip
        self.prompt_ttft = histogram(
            "weir_prompt_time_to_first_token_seconds",
            "The time to the first token as clients see it, by the length of the prompt in tokens.",
            TTFT, "pool", "prompt_tokens",
        )  # fmt: skip
        self.longest_gap = histogram(
            "weir_longest_token_gap_seconds", "Longest wait between two reads with output in one answer.", GAP,
            "pool", "model", exemplars=True,
        )  # fmt: skip
        self.queue = histogram(
            "weir_queue_duration_seconds", "Wait for admission, zero waits included.", QUEUE, "pool", "model"
        )
        self.overhead = histogram(
            "weir_gateway_overhead_seconds",
            "From being admitted to the first attempt sent: our share of the wait for it.",
            SMALL, "pool",
        )  # fmt: skip
        self.write_wait = histogram(
            "weir_client_write_wait_seconds", "Time in which a slow client took no bytes, per answer.", QUEUE, "pool"
        )
        self.tokens = counter(
            "weir_tokens_total", "Tokens as the engines reported them.", "pool", "model", "endpoint", "type", "source"
        )
        self.shed = counter(
            "weir_shed_total", "Requests turned away: for want of room, or by a stop.", "pool", "model", "reason"
        )
        self.attempts = counter(
            "weir_endpoint_attempts_total", "Attempts finished, by how they ended.",
            "pool", "model", "endpoint", "role", "outcome",
        )  # fmt: skip
        self.endpoint_ttft = histogram(
            "weir_endpoint_time_to_first_token_seconds", "From the attempt sent to its first output.", TTFT,
            "model", "endpoint", "role", exemplars=True,
        )  # fmt: skip
        self.gaps = histogram(
            "weir_inter_token_latency_seconds", "Gaps between chunks with output; chunks of one read share theirs.",
            GAP, "model", "endpoint", "role",
        )  # fmt: skip
        self.tpot = histogram(
            "weir_time_per_output_token_seconds",
            "From the first to the last output, by completion tokens less one; one value a request.",
            GAP, "model", "endpoint", "role",
        )  # fmt: skip
        self.endpoint_duration = histogram(
            "weir_endpoint_duration_seconds", "From the attempt sent to its end.", DURATION,
            "model", "endpoint", "role",
        )  # fmt: skip
        self.connect = histogram(
            "weir_endpoint_connect_seconds", "New connections only, TLS included.", SMALL, "endpoint"
        )
        self.errors = counter("weir_endpoint_errors_total", "Failed attempts by cause.", "endpoint", "error_type")
        self.retries = counter("weir_retries_total", "Further attempts after a failure.", "pool", "reason")
        self.hedges = counter(
            "weir_hedges_total", "Second attempts beside a first one, by which answered.", "pool", "result"
        )
        self.hedges_withheld = counter(
            "weir_hedges_withheld_total", "Requests late with their first output that got no second attempt.",
            "pool", "reason",
        )  # fmt: skip
        self.resumes = counter(
            "weir_resumes_total", "Streams that an engine broke off, by whether another went on with them.",
            "pool", "result",
        )  # fmt: skip
        self.output_tokens = histogram(
            "weir_output_tokens_per_request", "Completion tokens per answer.", TOKENS, "model", "endpoint"
        )
        self.embeddings_batch_inputs = histogram(
            "weir_embeddings_batch_inputs", "Inputs of each gathered batch of embedding requests, one alone included.",
            BATCH_INPUTS, "pool", "model",
        )  # fmt: skip
        self.route_choices = counter(
            "weir_route_choices_total", "Endpoints chosen for an attempt.", "pool", "endpoint", "policy"
        )
        self.route_duration = histogram("weir_route_duration_seconds", "One choice of an endpoint.", SMALL, "pool")
        self.loop_lag = histogram("weir_event_loop_lag_seconds", "Lateness of a timer of 100 ms.", SMALL)
        self.gc_pauses = histogram(
            "weir_gc_pause_seconds", "Garbage collections, by the oldest generation looked at.", SMALL, "generation"
        )
        self.told: tuple[Family, ...] = (
            self.requests, self.duration, self.ttft, self.prompt_ttft, self.longest_gap, self.queue, self.overhead,
            self.write_wait, self.tokens, self.shed, self.attempts, self.endpoint_ttft, self.gaps, self.tpot,
            self.endpoint_duration,
            self.connect, self.errors, self.retries, self.hedges, self.hedges_withheld, self.resumes,
            self.output_tokens, self.embeddings_batch_inputs, self.route_choices, self.route_duration, self.loop_lag,
            self.gc_pauses,
        )  # fmt: skip
