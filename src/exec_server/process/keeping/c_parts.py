"""`signal` and `socket`, without what takes long to import.

These are the parts in C. The rest of both modules turns numbers into enumerations, which takes
longer than all other imports of a keeper together.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import socket
else:
    try:
        import _signal as signal
        import _socket as socket
    except ImportError:
        import signal
        import socket

__all__ = ["signal", "socket"]
