"""Settings for nodes on a disk that others fill.

A node deletes its oldest files above 85 % of use and refuses puts above 90 %, no matter what fills
the disk. A test stores little, on a machine whose disk may be that full already: it would lose
messages that nobody deleted, a megabyte at a time, since its files are small. What these limits do
is tested on disks in memory.
"""

ENVIRONMENT = {
    "TANDEMLOG_STORE__RETENTION__CLEAN_FORCIBLY": "false",
    "TANDEMLOG_STORE__RETENTION__DISK_WARNING_PERCENT": "100",
}
