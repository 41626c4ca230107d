"""`environment/*`, `environmentConfig/*` and the discovery of capabilities: shapes and names."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from exec_server.errors import InvalidParams
from exec_server.protocol.method import Method, Nothing
from exec_server.protocol.paths import PathUri
from exec_server.protocol.sandbox import SandboxContext


class Shell(msgspec.Struct, rename="camel", frozen=True):
    """A shell's kind (``zsh``, ``bash``, ``sh``, ``powershell`` or ``cmd``) and its path."""

    name: str
    path: str


class SandboxBackend(msgspec.Struct, rename="camel", frozen=True):
    """Whether a backend works there; if not, what stops it, and what helps.

    A backend is a way to enforce sandboxes. Its members are called `rung` and `rungs` on the wire
    and in the output of `-o json`: earlier clients and servers know them by these names.
    """

    rung: str
    works: bool
    # A path or a version, for example.
    found: str | None = None
    obstacle: str | None = None
    remedy: str | None = None


class SandboxInfo(msgspec.Struct, rename="camel", frozen=True):
    """How sandboxes are enforced."""

    # The strongest backend that works, or "none".
    rung: str
    # Every backend, the strongest first.
    rungs: list[SandboxBackend] = msgspec.field(default_factory=list)


class EnvironmentInfo(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Facts about the executor's machine; directories are file: URIs.

    Older servers send only some of them; the oldest send only `shell`. None and empty values mean
    unknown, and a capability that is not named is missing.
    """

    shell: Shell
    executor_version: str | None = None
    # An opaque text that stays the same on this machine.
    provider_id: str | None = None
    cwd: str | None = None
    # The member is absent, not null, if the directory is unknown.
    user_home_dir: str | UnsetType | None = UNSET
    platform_os: str | None = None
    # Directories that a client should put in front of PATH.
    prepend_path_dirs: list[str] = msgspec.field(default_factory=list)
    # The directories that the server's environment names; unlike tempDir there is no default.
    temporary_directories: list[str] = msgspec.field(default_factory=list)
    temp_dir: str | None = None
    capabilities: dict[str, bool] = msgspec.field(default_factory=dict)
    # Ours. The member is absent until it is known; `environment/info` waits for it.
    sandbox: SandboxInfo | UnsetType = UNSET


class ConfigReadParams(msgspec.Struct, rename="camel"):
    """The keys of the executor's configuration to read, each as a path of names."""

    # The directory need not exist.
    cwd: PathUri
    config_paths: list[list[str]]
    requirements_paths: list[list[str]]

    def __post_init__(self) -> None:
        paths = [*self.config_paths, *self.requirements_paths]
        if not paths:
            raise InvalidParams("at least one config or requirements path is required")
        if not all(paths):
            raise InvalidParams("TOML paths must contain at least one key segment")


class ConfigLayer(msgspec.Struct, rename="camel", frozen=True):
    # A description for people.
    source: str
    # The base of relative paths in the text.
    base_dir: str
    toml: str


class ConfigLayers(msgspec.Struct, rename="camel", frozen=True):
    # The layers are ordered from the lowest to the highest precedence.
    layers: list[ConfigLayer]
    # The index at which layers from other sources are inserted.
    cloud_insertion_index: int


class ConfigReadResult(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    user_home_dir: str | None
    codex_home_dir: str
    hostname: str | None
    config: ConfigLayers
    requirements: ConfigLayers


class CapabilityRoot(msgspec.Struct, rename="camel"):
    # The client chooses this id, and may use it more than once.
    id: str
    path: PathUri
    # The files that the scan may see; None is no restriction.
    sandbox: SandboxContext | None = None


class DiscoverRootsParams(msgspec.Struct, rename="camel"):
    roots: list[CapabilityRoot]


class CapabilityFile(msgspec.Struct, rename="camel", frozen=True):
    path: str
    contents: str


class PluginFiles(msgspec.Struct, rename="camel", frozen=True):
    manifest: CapabilityFile
    mcp_config: CapabilityFile | None
    apps_config: CapabilityFile | None


class SkillFiles(msgspec.Struct, rename="camel", frozen=True):
    instructions: CapabilityFile
    metadata: CapabilityFile | None


class DiscoveredRoot(msgspec.Struct, rename="camel"):
    id: str
    path: str
    plugin: PluginFiles | None = None
    skills: list[SkillFiles] = msgspec.field(default_factory=list)
    namespace_manifests: list[CapabilityFile] = msgspec.field(default_factory=list)
    warnings: list[str] = msgspec.field(default_factory=list)
    # The reason if the root could not be inspected.
    error: str | None = None


class DiscoverRootsResult(msgspec.Struct, rename="camel"):
    roots: list[DiscoveredRoot]


class DiscoverParams(msgspec.Struct, rename="camel"):
    cwd: PathUri
    sandbox: SandboxContext | None = None


class DiscoveryRoot(msgspec.Struct, rename="camel", frozen=True):
    id: str
    path: str


class SkillTool(msgspec.Struct, rename="camel", frozen=True):
    type: str
    value: str
    description: str | None = None
    transport: str | None = None
    command: str | None = None
    url: str | None = None
    oauth_callback_port: int | None = None


class SkillDependencies(msgspec.Struct, rename="camel", frozen=True):
    tools: list[SkillTool]


class SkillPolicy(msgspec.Struct, rename="camel", frozen=True):
    allow_implicit_invocation: bool | None
    products: list[str]


class Skill(msgspec.Struct, rename="camel", kw_only=True):
    name: str
    description: str
    short_description: str | None
    path: str
    # The skills of plugins do not have this.
    discovery_root: DiscoveryRoot | UnsetType = UNSET
    dependencies: SkillDependencies | None
    policy: SkillPolicy | None


class Plugin(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    # The id has the form PLUGIN@MARKETPLACE.
    id: str
    display_name: str
    remote_plugin_id: str | None
    version: str
    root: str
    files: PluginFiles
    skills: list[Skill]


class CapabilitiesResult(msgspec.Struct, rename="camel", frozen=True):
    plugins: list[Plugin]
    skills: list[Skill]
    warnings: list[str]


class StatusResult(msgspec.Struct, rename="camel", frozen=True):
    status: str = "ready"


# Tells facts about the server's machine, and the server's capabilities.
INFO = Method(
    "environment/info",
    Nothing,
    EnvironmentInfo,
    family="environment info",
    is_control=True,
    dialect="undocumented",
)
# Tells whether the environment is ready.
STATUS = Method(
    "environment/status",
    Nothing,
    StatusResult,
    family="environment status",
    is_control=True,
    dialect="undocumented",
)
# Reads the configuration of the server's machine.
READ_CONFIG = Method(
    "environmentConfig/read",
    ConfigReadParams,
    ConfigReadResult,
    family="environment config",
    dialect="undocumented",
)
# Finds the skills and plugins below the given roots.
DISCOVER_ROOTS = Method(
    "capabilityRoots/discoverV1",
    DiscoverRootsParams,
    DiscoverRootsResult,
    family="capability discovery",
    dialect="undocumented",
)
# Finds the skills, plugins and instructions of an environment.
DISCOVER = Method(
    "capabilities/discoverV2",
    DiscoverParams,
    CapabilitiesResult,
    family="capability discovery",
    dialect="undocumented",
)
