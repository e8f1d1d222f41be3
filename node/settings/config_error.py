"""The error of every setting, beside the settings: who only catches it loads no pydantic."""


class ConfigError(Exception):
    """Settings that cannot be used: one line for each mistake, which names the key."""
