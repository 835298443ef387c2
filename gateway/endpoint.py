"""One engine process: what Weir knows of it, how it is reached, and what of ours is open there."""

from __future__ import annotations

import ssl
from importlib.util import find_spec

from adapters import ADAPTERS
from adapters.capabilities import capabilities
from adapters.engine_facts import fact_source
from adapters.types import Adapter, EngineTimings
from policies.health import HealthRules, HealthState, is_untroubled
from policies.named_tuples import named
from policies.types import HEALTHS, EndpointSnapshot, Health, Learner

from .config import EndpointConfig, PoolConfig
from .own_load import OwnLoad
from .probing.fact_sample import NO_FACT_SAMPLE, FactSample
from .probing.load_sample import NO_SAMPLE, LoadSample
from .probing.missing_signals import MissingSignals
from .upstream.contract import Upstream, WireRequest
from .upstream.native import NativeUpstream
from .upstream.via_httpx2 import Httpx2Upstream

COLD_LOAD_S = 0.5
"""An answer that waited so long for its model found it not loaded."""
ASSUMED_LOAD_S = 5.0
"""What loading a model costs where that was never measured: never nothing."""
_AUTHORIZATION = b"authorization"
# Of a snapshot: health, running, waiting, kv_usage_ratio, sampled_s, slots, load_penalty_s
_Lasting = tuple[Health, int | None, int | None, float | None, float | None, int | None, float]


class Endpoint:
    """One engine process at one base URL.

    Attributes:
        engine_model: The engine's own name of the model.
        adapter: Its dialect: the configured engine's, until another one has been recognised there.
        engine_version: As the engine told it, or "".
        capabilities: What that engine can do in that version.
        recognised: Whether it has been asked which engine it is since it may last have been started.
        load: What this engine last said of its load.
        facts: What it last said of its settings, and of the models that it holds.
        missing: What it could say of itself and does not.
        cold_load_s: What loading the model cost there, smoothed; None before any.
        own: What of ours is open there.
        health: What is known of its health.
        untroubled: Whether a request that is answered changes nothing of that.
        upstream: Its connections.
        questions: Carries Weir's own questions in the same way, each on a new connection: an engine that accepts none
            any more is found out, and none that it may be closing already is used.
        transitions: How often it came into which state.
        told: Reasons for an ejection that did not come about, already logged since the endpoint last did well.
        busy_until_s: Until when its engine asked for patience (Retry-After), monotonic; None if it did not.
        has_credential: The operator has set what its engine asks for, so no client's is shown to it.
    """

    def __init__(self, config: EndpointConfig, pool: PoolConfig, learner: Learner | None = None) -> None:
        self.own = OwnLoad(learner)
        self._lasting: _Lasting | None = None
        self._weight = config.weight
        self.config = config
        self.id = config.id
        self.adapter: Adapter = ADAPTERS.get(config.engine, ADAPTERS["openai"])
        self.engine_version = ""
        self.capabilities = capabilities(self.adapter.name)
        self.recognised = False
        self.load = NO_SAMPLE
        self.engine_model = config.model or pool.name
        self._unloaded_s = 0.0
        self.facts = NO_FACT_SAMPLE
        self.missing = MissingSignals()
        self.cold_load_s: float | None = None
        self.health = HealthState()
        self.transitions: dict[Health, int] = dict.fromkeys(HEALTHS, 0)
        self.told: set[str] = set()
        self.busy_until_s = None
        self.rules = HealthRules(
            pool.health.failures, pool.health.successes, pool.health.eject_s, pool.health.eject_max_s
        )
        tls = ssl.create_default_context() if config.scheme == "https" else None
        self.upstream = _upstream(config, tls, self.adapter.idle_s)
        self.questions = _upstream(config, tls, 0.0)
        self._base_path = config.base_path
        self._has_version = config.has_version
        self._headers = [(name.lower().encode("ascii"), value.encode()) for name, value in config.headers.items()]
        if config.api_key is not None:
            secret = config.api_key.get_secret_value()
            self._headers.append((_AUTHORIZATION, b"Bearer " + secret.encode()))
        self.has_credential = any(name == _AUTHORIZATION for name, _ in self._headers)
        self._replaces_credentials = self.has_credential and pool.forward_authorization  # else none comes

    @property
    def health(self) -> HealthState:
        return self._health

    @health.setter
    def health(self, state: HealthState) -> None:
        self._health = state
        self.untroubled = is_untroubled(state)
        self._changed()

    @property
    def load(self) -> LoadSample:
        return self._load

    @load.setter
    def load(self, sample: LoadSample) -> None:
        self._load = sample
        self._changed()

    @property
    def facts(self) -> FactSample:
        return self._facts

    @facts.setter
    def facts(self, sample: FactSample) -> None:
        self._facts = sample
        if self.model_loaded is False:
            self._unloaded_s = sample.asked_s or 0.0
        self._changed()

    @property
    def model_loaded(self) -> bool | None:
        """Whether its engine has the model in its memory; None if that is not known."""
        return self._facts.facts.holds(self.engine_model)

    @property
    def loads_since_s(self) -> float | None:
        """When its engine, if it loads a model as it is asked for it, was last known not to have this one; 0 if never.

        None of an engine that has its model for as long as it runs.
        """
        source = fact_source(self.adapter.name)
        return self._unloaded_s if source is not None and source.tells == "model_loaded" else None

    @property
    def load_penalty_s(self) -> float:
        """What a request waits there for the model to be loaded; 0 if it is, or is not known not to be."""
        if self.model_loaded is not False:
            return 0.0
        return ASSUMED_LOAD_S if self.cold_load_s is None else self.cold_load_s

    def answered(self, timings: EngineTimings) -> None:
        """Learns what loading the model costs from an answer that waited for it."""
        if timings.load_s is None or timings.load_s < COLD_LOAD_S:
            return
        known_s = self.cold_load_s
        self.cold_load_s = timings.load_s if known_s is None else (known_s + timings.load_s) / 2
        self._changed()

    @property
    def busy_until_s(self) -> float | None:
        return self._busy_until_s

    @busy_until_s.setter
    def busy_until_s(self, until_s: float | None) -> None:
        self._busy_until_s = until_s
        self._changed()

    @property
    def healthy(self) -> bool:
        """Whether it takes traffic without reserve."""
        return self._health.name == "healthy"

    def snapshot(self) -> EndpointSnapshot:
        """Returns it as routing sees it; the same object until something changes."""
        own = self.own
        if own.seen is None:
            health, running, waiting, kv_usage_ratio, sampled_s, slots, load_penalty_s = self._lasting or self._last()
            pending, oldest_s, oldest_tokens = own.pending, None, 0
            if pending:
                oldest = next(iter(pending))
                oldest_s, oldest_tokens = oldest.taken_s, oldest.uncached_tokens
            fields = (
                self.id,
                health,
                len(own.open),
                self.capabilities,
                self._weight,
                len(pending),
                own.pending_tokens,
                oldest_s,
                oldest_tokens,
                own.held_tokens,
                own.answers,
                own.ttft_s,
                own.itl_s,
                running,
                waiting,
                kv_usage_ratio,
                sampled_s,
                own.learnt,
                slots,
                load_penalty_s,
                self._busy_until_s,
                own.fruitless,
            )
            own.seen = named(EndpointSnapshot, fields)
        return own.seen

    def _changed(self) -> None:
        """Something has, of what lasts longer than a request."""
        self.own.seen = self._lasting = None

    def _last(self) -> _Lasting:
        """Returns what of a snapshot lasts until the endpoint is found to have changed, for the next ones too."""
        load, sampled_s = self._load
        slots = self._facts.facts.slots
        told = (load.running, load.waiting, load.kv_usage_ratio, sampled_s, slots)
        self._lasting = lasting = (self._health.name, *told, self.load_penalty_s)
        return lasting

    def speak(self, adapter: Adapter, version: str) -> None:
        """From now on requests are written for this engine; ``version`` may be "". Of a new one no load is known."""
        if (adapter, version) != (self.adapter, self.engine_version):
            self.load = NO_SAMPLE
            self.facts = NO_FACT_SAMPLE
            self.missing.another_engine()
        self.adapter = adapter
        self.engine_version = version
        self.capabilities = capabilities(adapter.name, version)
        self._changed()

    def question(self, path: str, headers: tuple[tuple[bytes, bytes], ...] = ()) -> WireRequest:
        """Returns a GET that Weir makes for itself."""
        return self.wire("GET", path, b"", headers)

    def wire(self, method: str, path: str, body: bytes, headers: tuple[tuple[bytes, bytes], ...]) -> WireRequest:
        """Returns the request for this endpoint: its base path, its own headers, our credential.

        Where it has one, a client's is left out: two are an error to most servers.
        """
        if self._has_version and path.startswith("/v1/"):
            path = path[3:]
        if self._headers:
            if self._replaces_credentials:
                headers = tuple([header for header in headers if header[0] != _AUTHORIZATION])
            headers = (*headers, *self._headers)
        return named(WireRequest, (method, self._base_path + path, headers, body))


def _upstream(config: EndpointConfig, tls: ssl.SSLContext | None, idle_s: float) -> Upstream:
    if config.transport == "httpx2":
        http2 = find_spec("h2") is not None  # the extra http2; offered where TLS lets both sides choose
        return Httpx2Upstream(f"{config.scheme}://{_netloc(config)}", idle_s=idle_s, http2=http2, verify=tls)
    return NativeUpstream(config.host, config.port, tls=tls, idle_s=idle_s)


def _netloc(config: EndpointConfig) -> str:
    host = f"[{config.host}]" if ":" in config.host else config.host
    return f"{host}:{config.port}"
