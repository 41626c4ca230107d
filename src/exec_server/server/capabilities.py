"""What this server can do, as `environment/info` tells clients; true only for what works."""

from __future__ import annotations

import sys

# The reference's names: clients gate newer requests on them.
_OF_THE_REFERENCE = {
    "networkProxyLaunch": False,
    "networkProxyReviewDomains": False,
    "credentialMasking": False,
    "credentialMaskingCustomProviders": False,
    "capabilityDiscoverySandbox": False,
    "fsWatchMissing": sys.platform == "linux",
    "capabilityDiscoveryV2": False,
    "environmentConfigRead": False,
    "httpHeaderEnvVars": False,
    "sandboxedFileStreaming": False,
    "fileWriteStreaming": True,
    "shellSnapshotV2": False,
    "windowsMxc": False,
    "linuxRootWritePreservesDevices": False,
    "linuxApprovedRootWritePreservesRestrictions": False,
}

# Ours; everybody else ignores them.
_OF_OURS = {
    "processResize": True,
    "processCloseStdin": True,
    "processSignals": True,
    "processList": True,
    "processReadDroppedBytes": True,
    "concurrentRequests": True,
    "fsRename": True,
    "fsSetPermissions": True,
    "fsAppend": True,
    "fsAtomicWrite": True,
}

CAPABILITIES: dict[str, bool] = {**_OF_THE_REFERENCE, **_OF_OURS}
