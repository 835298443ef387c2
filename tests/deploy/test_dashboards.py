"""The dashboards are what the generator makes, and laid out so that nothing hides anything."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from deploy.dashboards import variables
from deploy.dashboards.files import FOLDER, texts
from gateway.instruments.histogram import GAP, TTFT
from tests.deploy.boards import BOARDS, panels

ALL = sorted(BOARDS)


def test_making_them_again_changes_nothing() -> None:
    committed = {path.name: path.read_text() for path in FOLDER.iterdir()}
    assert committed == texts(), "the files are old: make dashboards"


def test_there_is_one_for_each_question() -> None:
    assert ALL == ["engines", "gateway", "overview", "routing", "streams"]
    assert len({board["uid"] for board in BOARDS.values()}) == len(BOARDS)


@pytest.mark.parametrize("board", ALL)
def test_panels_do_not_overlap_and_stay_on_the_grid(board: str) -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in BOARDS[board]["panels"]:
        at = panel["gridPos"]
        assert 0 <= at["x"] < at["x"] + at["w"] <= 24, panel["title"]
        for cell in itertools.product(range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"])):
            assert cell not in taken, f"{panel['title']} lies over {taken[cell]}"
            taken[cell] = panel["title"]


@pytest.mark.parametrize("board", ALL)
def test_lines_of_panels_leave_no_hole(board: str) -> None:
    cells = {
        (x, y)
        for panel in BOARDS[board]["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    }
    height = 1 + max(y for _, y in cells)
    assert len(cells) == 24 * height


@pytest.mark.parametrize("board", ALL)
def test_panels_and_queries_have_names_of_their_own(board: str) -> None:
    ids = [panel["id"] for panel in BOARDS[board]["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in panels(board):
        refs = [target["refId"] for target in panel["targets"]]
        assert len(set(refs)) == len(refs), panel["title"]


@pytest.mark.parametrize("board", ALL)
def test_every_panel_says_in_words_what_it_shows_and_in_which_unit(board: str) -> None:
    for panel in panels(board):
        assert panel["title"]
        assert panel["description"].endswith("."), panel["title"]
        if panel["type"] == "timeseries":
            assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]


@pytest.mark.parametrize("board", ALL)
def test_the_source_of_the_data_is_chosen_and_not_written_down(board: str) -> None:
    by_choice = {"type": "prometheus", "uid": "${datasource}"}
    for panel in panels(board):
        assert panel["datasource"] == by_choice
        assert all(target["datasource"] == by_choice for target in panel["targets"])
    first = BOARDS[board]["templating"]["list"][0]
    assert (first["type"], first["name"], first["query"]) == ("datasource", "datasource", "prometheus")


@pytest.mark.parametrize("board", ALL)
def test_queries_use_only_variables_that_the_dashboard_has(board: str) -> None:
    names = {variable["name"] for variable in BOARDS[board]["templating"]["list"]}
    for panel in panels(board):
        text = " ".join([panel["title"], *(target["expr"] for target in panel["targets"])])
        used = {word for word in names_in(text) if not word.startswith("__")}
        assert used <= names, panel["title"]


def names_in(text: str) -> set[str]:
    return {"".join(itertools.takewhile(lambda c: c.isalnum() or c == "_", part)) for part in text.split("$")[1:]}


@pytest.mark.parametrize("board", ALL)
def test_every_dashboard_links_to_the_others_and_keeps_what_was_chosen(board: str) -> None:
    made = BOARDS[board]
    (link,) = made["links"]
    assert (link["type"], link["tags"], link["includeVars"], link["keepTime"]) == ("dashboards", ["weir"], True, True)
    assert made["tags"] == ["weir"]


def test_promises_can_be_set_to_edges_of_buckets_only() -> None:
    assert set(variables.TTFT_EDGES) <= {repr(float(edge)) for edge in TTFT}
    assert set(variables.GAP_EDGES) <= {repr(float(edge)) for edge in GAP}
    for board in BOARDS.values():
        for variable in board["templating"]["list"]:
            if variable["name"].startswith("slo_"):
                assert variable["allowCustomValue"] is False
                assert [option["value"] for option in variable["options"] if option["selected"]] == [
                    variable["current"]["value"]
                ]


def test_the_first_thing_one_sees_is_whether_promises_are_kept() -> None:
    row, *tiles = BOARDS["overview"]["panels"][:7]
    assert row["title"] == "Are promises kept?"
    assert [tile["type"] for tile in tiles] == ["stat"] * 6


def test_latency_of_clients_leads_to_traces() -> None:
    with_traces = {
        (board, panel["title"]) for board in ALL for panel in panels(board) if any(map(_shows_traces, panel["targets"]))
    }
    assert {
        ("overview", "Time to the first token"),
        ("overview", "Longest gap"),
        ("streams", "Time to the first token"),
        ("streams", "Longest gap of an answer"),
        ("engines", "Time to the first token, p95"),
    } <= with_traces


def _shows_traces(target: Any) -> bool:
    return target.get("exemplar") is True
