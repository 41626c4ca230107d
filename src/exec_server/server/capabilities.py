"""The capabilities of this server that `environment/info` reports."""

from __future__ import annotations

import sys

# The reference's capabilities; its clients send newer requests only if they are true.
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

# Our own capabilities, which other clients ignore.
_OF_OURS = {
    "processResize": True,
    "processCloseStdin": True,
    "processSignals": True,
    "processExitSignals": True,
    "processDetails": True,
    "processReport": True,
    "processList": True,
    "processWatch": True,
    "processName": True,
    "processDenials": sys.platform == "linux",
    "processScreen": sys.platform in ("linux", "darwin"),
    "processScreenAt": sys.platform in ("linux", "darwin"),
    "processShellIntegration": True,
    "processTerminateTree": sys.platform == "linux",
    "processLimits": sys.platform == "linux",
    "processReadDroppedBytes": True,
    "processFlow": True,
    "concurrentRequests": True,
    "sessionRetain": True,
    "sessionTakeOver": True,
    "sessionTakeOverForce": True,
    "sessionPing": True,
    "sessionWhoami": True,
    "serverInstance": True,
    "rpcDiscover": True,
    "errorDetails": True,
    "packedMessages": True,
    "fsRename": True,
    "fsSetPermissions": True,
    "fsAppend": True,
    "fsOpenUpdate": True,
    "fsAtomicWrite": True,
    "fsWalkExactNames": True,
    "fsCompleteListing": True,
    "fsCopyArchive": True,
    "fsLinks": True,
    "streams": True,
    "processPorts": sys.platform == "linux",
    "fsDelta": sys.platform == "linux",
    "fsDeltaKeyed": sys.platform == "linux",
    "fsSearch": sys.platform == "linux",
    "fsSearchPacked": sys.platform == "linux",
    "fsWatch": sys.platform == "linux",
}

CAPABILITIES: dict[str, bool] = {**_OF_THE_REFERENCE, **_OF_OURS}
