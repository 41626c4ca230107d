"""What this server can do, as `environment/info` tells clients; true only for what works."""

from __future__ import annotations

import sys

# The reference's names: clients gate newer requests on them.
_OF_THE_REFERENCE = {
    "networkProxyLaunch": True,
    "networkProxyReviewDomains": True,
    "credentialMasking": False,
    "credentialMaskingCustomProviders": False,
    "capabilityDiscoverySandbox": sys.platform == "linux",
    "fsWatchMissing": sys.platform == "linux",
    "capabilityDiscoveryV2": True,
    "environmentConfigRead": True,
    "httpHeaderEnvVars": True,
    "sandboxedFileStreaming": sys.platform == "linux",
    "fileWriteStreaming": True,
    "shellSnapshotV2": True,
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
    "processFlow": True,
    "concurrentRequests": True,
    "sessionRetain": True,
    "fsRename": True,
    "fsSetPermissions": True,
    "fsAppend": True,
    "fsAtomicWrite": True,
}

CAPABILITIES: dict[str, bool] = {**_OF_THE_REFERENCE, **_OF_OURS}
