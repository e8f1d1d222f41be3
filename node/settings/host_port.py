"""host:port, as settings have it."""


def split_endpoint(text: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[v6]:port`. Raises ValueError that names the text."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"must be host:port with a port of 0..65535, not {text!r}")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise ValueError(f"an IPv6 address must be in brackets: {text!r}")
    return host.strip("[]"), int(port)


def join(host: str, port: int) -> str:
    """host:port, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
