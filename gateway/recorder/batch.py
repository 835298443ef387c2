"""Some closed records as the file holds them, in one row."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple
from zlib import crc32

from ..attribution.phases import wall_s
from ..flight import FlightRecord
from .record_json import dump


class Batch(NamedTuple):
    """Records, and what is told of them without looking into them.

    Attributes:
        longest_s: The wall time of the longest request.
        flights: How many records there are.
        ids: Of each the checksums of its request id and its trace id.
        records: What ``record_json.load`` reads.
    """

    first_unix_s: float
    last_unix_s: float
    longest_s: float
    flights: int
    ids: bytes
    records: bytes


def batch_of(records: Sequence[FlightRecord]) -> Batch:
    """Returns the batch of at least one record.

    Raises:
        TypeError: One holds what JSON does not.
    """
    received = [record.received_unix_s for record in records]
    ids = checksums(*[name for record in records for name in (record.request_id, record.trace_id)])
    return Batch(min(received), max(received), max(map(wall_s, records)), len(records), ids, dump(records))


def checksums(*names: str) -> bytes:
    """Returns four bytes for each name."""
    return array("I", [crc32(name.encode()) for name in names]).tobytes()
