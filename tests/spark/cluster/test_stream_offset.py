"""An offset survives the checkpoint; one that cannot be understood is refused."""

import json

import pytest

from fakes.live_stream import t
from tandemlog.format.files.log_history import NO_CUT, LogHistory, LogTerm
from tandemlog.spark.cluster.cluster_errors import OffsetsError
from tandemlog.spark.cluster.stream_offset import StreamOffset


def test_offsets_of_a_newer_version_are_refused() -> None:
    offset = StreamOffset({("t", 0): 4}, begins={("t", 0): 1}, cut={("t", 0): 2})
    assert StreamOffset.from_json(json.loads(json.dumps(offset.to_json()))) == offset
    with pytest.raises(OffsetsError, match=r"newer version .* @shape"):
        StreamOffset.from_json(t(4) | {"@shape": 1})


def test_of_a_long_history_the_newest_terms_are_kept() -> None:
    terms = tuple(LogTerm(epoch, epoch * 10, epoch) for epoch in range(1, 300))
    offset = StreamOffset({("t", 0): 1}, LogHistory(7, terms))
    kept = StreamOffset.from_json(json.loads(json.dumps(offset.to_json()))).history
    assert kept == LogHistory(7, terms[-64:])
    assert kept.cut_against(LogHistory(7, terms)) == NO_CUT
    with pytest.raises(OffsetsError, match="damaged"):
        StreamOffset.from_json(t(4) | {"@log": {"terms": 3}})
