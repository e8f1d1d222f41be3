"""What every request passes before a method sees it, and after that."""

import time
from collections.abc import Iterator

import pytest

from fakes.remoting_calls import Connected
from tandemlog_server.node.access.access_file import parse_access
from tandemlog_server.node.access.doorkeeper import Doorkeeper
from tandemlog_server.node.pulls.read_turns import ReadTurns
from tandemlog_server.node.remoting.door.remoting_call import Method, RemotingCall
from tandemlog_server.node.remoting.door.remoting_door import RemotingDoor
from tandemlog_server.node.remoting.door.remoting_proofs import signature_of
from tandemlog_server.node.services.call_door import CallDoor
from tandemlog_server.rocketmq.clients.codes import RequestCode, ResponseCode
from tandemlog_server.rocketmq.wire.remoting import Command

SECRET = "12345678"
ACCESS = f"""
[[identity]]
name = "orders"
write = ["orders"]
access_keys = [{{ key = "k", secret = "{SECRET}" }}]
"""


class Scene:
    """A door with one method for all of CODES, in whose middle the access file is read again."""

    CODES = (
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_REPLY_MESSAGE_V2,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.PULL_MESSAGE,
    )

    def __init__(self) -> None:
        self.turns = ReadTurns(1, 1 << 20)
        access = parse_access(ACCESS, "access.toml")
        self.keeper = Doorkeeper("c", monotonic=time.monotonic, access=access)
        door = CallDoor(self.turns, max_calls=16, max_streams=16, keeper=self.keeper)
        self.door = RemotingDoor(door, dict.fromkeys(self.CODES, Method(self.serve)))

    async def serve(self, call: RemotingCall) -> Command:
        self.keeper.replace_access(parse_access(ACCESS, "access.toml"))
        return call.request.response()

    async def ask(self, code: int) -> int:
        fields = {"AccessKey": "k"}
        fields["Signature"] = signature_of(SECRET, fields, b"")
        caller = self.door.enter(Connected.peer)
        try:
            call = RemotingCall(Command(code, 1, fields=fields), caller, Connected())
            answer = self.door.admit(call, None) or await self.door.serve(call)
        finally:
            self.door.leave(caller)
        assert answer is not None
        return answer.code


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.turns.close()


async def test_what_was_read_with_rights_that_may_have_changed_is_not_given(scene: Scene) -> None:
    assert await scene.ask(RequestCode.PULL_MESSAGE) == ResponseCode.SYSTEM_BUSY


@pytest.mark.parametrize("code", [each for each in Scene.CODES if each != RequestCode.PULL_MESSAGE])
async def test_what_was_stored_is_said_to_be_whatever_became_of_the_rights(
    scene: Scene, code: int
) -> None:
    """A producer that hears "busy" sends its message again at once."""
    assert await scene.ask(code) == ResponseCode.SUCCESS
