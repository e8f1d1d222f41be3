"""Bytes computed by Java programs, and by RocketMQ's own classes, for the tests of the format."""

from typing import Any

PROPERTIES = {"UNIQ_KEY": "7F0000010000123456780000000A0001", "TAGS": "TagA"}
FIELDS: dict[str, Any] = {
    "topic": "TopicTest",
    "queue_id": 3,
    "flag": 0,
    "queue_offset": 7,
    "physical_offset": 1073741824,
    "sys_flag": 0,
    "born_timestamp": 1700000000000,
    "born_host": "127.0.0.1:54321",
    "store_timestamp": 1700000000123,
    "store_host": "10.0.0.5:10911",
    "body": b"hello",
}
_HEAD = (
    "daa320a73610a68600000003000000000000000000000007000000004000000000000000"
    "0000018bcfe568007f0000010000d4310000018bcfe5687b0a00000500002a9f00000000"
    "00000000000000000000000568656c6c6f09546f7069635465737400"
)
_PROPERTIES = (
    "554e49515f4b4559013746303030303031303030303132333435363738303030303030304130303031"
    "0254414753015461674102"
)
RECORD = bytes.fromhex("0000009d" + _HEAD + "34" + _PROPERTIES)
"""V1, 157 bytes."""
RECORD_WITH_CRC = bytes.fromhex(
    "000000b1" + _HEAD + "48" + _PROPERTIES + "5f5f435243333223013430373136393032313102"
)
"""The same with a property CRC, 177 bytes."""
MSG_ID = "0A00000500002A9F0000000040000000"
UNIT = bytes.fromhex("00000000400000000000009d000000000027a807")
PRE_BLANK = bytes.fromhex("00000000000000007fffffff0000000000000000")
BLANK_100 = bytes.fromhex("00000064cbd43194")

JAVA_HASHES = {
    "": 0,
    "a": 97,
    "TagA": 2598919,
    "TagB": 2598920,
    "a||b": 3012833,
    "中文": 646394,
    "polygenelubricants": -2147483648,
    "\U0001f600": 1772899,
    "TopicTest#key1": -1655984460,
}
