"""The methods of etcd's API that we use, by their paths and our messages. Pure."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from google.protobuf.message import Message

from tandemlog.v1 import coordinator_pb2 as pb

Request = TypeVar("Request", bound=Message)
Answer = TypeVar("Answer", bound=Message)


@dataclass(frozen=True, slots=True)
class Method(Generic[Request, Answer]):
    """`service` without its package; both messages are those of coordinator.proto."""

    service: str
    name: str
    request: type[Request]
    answer: type[Answer]

    @property
    def full_service(self) -> str:
        return f"etcdserverpb.{self.service}"

    @property
    def path(self) -> str:
        return f"/{self.full_service}/{self.name}"


RANGE = Method("KV", "Range", pb.RangeRequest, pb.RangeResponse)
PUT = Method("KV", "Put", pb.PutRequest, pb.PutResponse)
DELETE_RANGE = Method("KV", "DeleteRange", pb.DeleteRangeRequest, pb.DeleteRangeResponse)
TXN = Method("KV", "Txn", pb.TxnRequest, pb.TxnResponse)
COMPACT = Method("KV", "Compact", pb.CompactionRequest, pb.CompactionResponse)

LEASE_GRANT = Method("Lease", "LeaseGrant", pb.LeaseGrantRequest, pb.LeaseGrantResponse)
LEASE_REVOKE = Method("Lease", "LeaseRevoke", pb.LeaseRevokeRequest, pb.LeaseRevokeResponse)
LEASE_KEEP_ALIVE = Method(
    "Lease", "LeaseKeepAlive", pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse
)
LEASE_TIME_TO_LIVE = Method(
    "Lease", "LeaseTimeToLive", pb.LeaseTimeToLiveRequest, pb.LeaseTimeToLiveResponse
)
LEASE_LEASES = Method("Lease", "LeaseLeases", pb.LeaseLeasesRequest, pb.LeaseLeasesResponse)

WATCH = Method("Watch", "Watch", pb.WatchRequest, pb.WatchResponse)
AUTHENTICATE = Method("Auth", "Authenticate", pb.AuthenticateRequest, pb.AuthenticateResponse)
STATUS = Method("Maintenance", "Status", pb.StatusRequest, pb.StatusResponse)
MEMBER_LIST = Method("Cluster", "MemberList", pb.MemberListRequest, pb.MemberListResponse)
