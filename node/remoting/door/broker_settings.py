"""The settings of this node in the names of a broker, for request 26: those that are true of it."""

from collections.abc import Mapping

from tandemlog_server.rocketmq.clients.routes import BrokerNames
from tandemlog_server.storage.config import FlushMode

from ...settings.host_port import split_endpoint
from ...settings.node_config import NodeConfig

READ_WRITE = 6
"""What a broker lets its clients do."""


def broker_settings(config: NodeConfig, names: BrokerNames, address: str) -> Mapping[str, object]:
    """By RocketMQ's key. `address` is host:port as clients are told."""
    store, section = config.store, config.rocketmq_clients
    host, port = split_endpoint(address)
    synchronous = config.replication.mode.waits
    return {
        "aclEnable": bool(config.security.access_file),
        "autoCreateSubscriptionGroup": True,
        "autoCreateTopicEnable": section.auto_create_topics,
        "brokerClusterName": names.cluster,
        "brokerIP1": host,
        "brokerName": names.broker,
        "brokerPermission": READ_WRITE,
        "brokerRole": "SYNC_MASTER" if synchronous else "ASYNC_MASTER",
        "defaultTopicQueueNums": section.auto_create_queues,
        "deleteWhen": ";".join(f"{hour:02}" for hour in store.retention.delete_hours),
        "diskMaxUsedSpaceRatio": store.retention.disk_max_used_percent,
        "enablePropertyFilter": True,
        "fileReservedTime": f"{store.retention.reserved_hours:g}",
        "flushDiskType": "SYNC_FLUSH" if store.flush is FlushMode.SYNC else "ASYNC_FLUSH",
        "inSyncReplicas": config.replication.min_in_sync,
        "listenPort": port,
        "longPollingEnable": True,
        "mappedFileSizeCommitLog": store.commit_log_file_size,
        "mappedFileSizeConsumeQueue": store.queue_file_size,
        "maxIndexNum": store.index_entries,
        "maxHashSlotNum": store.index_slots,
        "maxMessageSize": store.max_message_size,
        "messageDelayLevel": store.delay_levels,
        "minInSyncReplicas": config.replication.min_in_sync,
        "slaveReadEnable": True,
        "storePathRootDir": store.directory,
        "transientStorePoolEnable": store.buffered,
    }
