"""What runs a node: the folders of the repository, by the names under which they are installed.

    storage/   ->  tandemlog_server.storage      rocketmq/  ->  tandemlog_server.rocketmq
    ha/        ->  tandemlog_server.ha           node/      ->  tandemlog_server.node
                                                 cli/       ->  tandemlog_server.cli

`storage` and `node` are names that a user's own project may have, so nothing is installed under
them (docs/decisions/0055-names-of-the-users.md). All code imports by the installed name; a module
that was imported by both names would exist twice.
"""
