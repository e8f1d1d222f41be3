"""fastjson's text: what is no JSON is read, and written back as it was."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.format.errors import FormatError
from tandemlog.format.files.store_json import dumps, loads

texts = st.text(st.characters(exclude_categories=["Cs"]))
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    texts,
)
keys = st.one_of(texts, st.integers(-(2**31), 2**31 - 1))
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=3)),
    max_leaves=8,
)

OFFSETS = (
    '{\n\t"dataVersion":{\n\t\t"counter":1\n\t},\n\t"groupTopicMap":{},\n\t"list":[\n\t\t"a",\n'
    '\t\t"b"\n\t],\n\t"offsetTable":{\n\t\t"T@G":{\n\t\t\t0:282,\n\t\t\t11:253\n\t\t}\n\t}\n}'
)


def test_shape_of_a_table() -> None:
    value = loads(OFFSETS)
    assert value == {
        "dataVersion": {"counter": 1},
        "groupTopicMap": {},
        "list": ["a", "b"],
        "offsetTable": {"T@G": {0: 282, 11: 253}},
    }
    assert dumps(value) == OFFSETS
    assert dumps(value, pretty=False) == OFFSETS.replace("\n", "").replace("\t", "")


@given(values, st.booleans())
def test_round_trip(value: object, pretty: bool) -> None:
    text = dumps(value, pretty=pretty)
    assert loads(text) == value
    assert loads(text.encode()) == value


@given(st.recursive(scalars, lambda inner: st.dictionaries(texts, inner, max_size=3)))
def test_reads_real_json(value: object) -> None:
    assert loads(json.dumps(value)) == value
    assert loads(json.dumps(value, indent=2, ensure_ascii=False)) == value
    assert json.loads(dumps(value)) == value


@given(st.text(alphabet="{}[]\",:'\\ 01e.-anul\n", max_size=20))
def test_any_text_is_a_value_or_a_typed_error(text: str) -> None:
    try:
        value = loads(text)
    except FormatError:
        return
    assert loads(dumps(value)) == value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{0:1,-5:2}", {0: 1, -5: 2}),
        ('{"0":1}', {"0": 1}),
        ("{name:'it\\'s', $a_1:[ ] }", {"name": "it's", "$a_1": []}),
        ('\ufeff{"a":null}'.encode(), {"a": None}),
        (' [true , false,1.5e3,"\\u4e2d\\/\\n\\ud83d\\ude00"] ', [True, False, 1500.0, "中/\n😀"]),
        ('{"a":1,"a":2}', {"a": 2}),
        ('"\\ud800"', "�"),
    ],
)
def test_reads_leniently(text: str | bytes, expected: object) -> None:
    assert loads(text) == expected


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "line 1, column 1: a value"),
        ('{"a":\n\t}', "line 2, column 2: a value"),
        ('{"a" 1}', "column 6: a colon"),
        ('{"a":1 "b":2}', "column 8: a comma or }"),
        ("[1 2]", "column 4: a comma or ]"),
        ("[1,]", "a value"),
        ('{"a":1,}', "a name"),
        ('{"a":1', "a comma or }"),
        ('"abc', "has no end"),
        ("{} x", "column 4: there is more"),
        ("nul", "column 1: a value"),
        ("1" * 50, "50 digits"),
        ("[" * 101, "100 levels"),
        (b"\xff", "byte 0 is not UTF-8"),
    ],
)
def test_names_the_place_that_is_wrong(text: str | bytes, named: str) -> None:
    with pytest.raises(FormatError, match=named):
        loads(text)


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ({1.5: 1}, "key of type float"),
        ({True: 1}, "key of type bool"),
        ([b"x"], "bytes"),
        (float("nan"), "nan"),
        ("\ud800", "Unicode"),
        ({"\ud800": 1}, "Unicode"),
    ],
)
def test_refuses_what_has_no_form(value: object, named: str) -> None:
    with pytest.raises(FormatError, match=named):
        dumps(value)


def test_refuses_endless_depth() -> None:
    value: list[object] = []
    value.append(value)
    with pytest.raises(FormatError, match="100 levels"):
        dumps(value)
