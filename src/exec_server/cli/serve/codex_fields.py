"""The settings of Codex's `config.toml` and its feature flags, as far as Codex 0.166.0 shows them.

The names were found by asking: `codex features list`, and `codex exec-server --strict-config` with
one setting of each type. A table whose settings are not all known is `OPEN`: its content is not
checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

STRING, INTEGER, BOOLEAN, LIST, OPEN = "string", "integer", "boolean", "sequence", "map"
# A setting that Codex refuses because it has no meaning any more.
REMOVED = "removed"

# A field is one or several of the types above, a tuple of the words that it may be, or the fields
# of a table.
Field = str | frozenset[str] | tuple[str, ...] | Mapping[str, Any]

# The key that stands for every key of a table that the user names.
EACH = "*"

FEATURES = frozenset(
    """
    agent_message_board analytics_plan_history api_key_cyber_access_programs
    api_key_model_discovery app_server_websocket_compression apply_patch_freeform
    apply_patch_preserve_line_endings apply_patch_streaming_events apps apps_mcp_path_override
    artifact async_compaction auth_elicitation background_paginated_rollout_migration
    bedrock_setup_wizard browser_annotation_api browser_use browser_use_external
    browser_use_full_cdp_access chronicle cli_daybreak code_mode code_mode_buffered_exec
    code_mode_host code_mode_host_grpc code_mode_interrupt code_mode_only
    code_mode_only_strict_3p_tools code_mode_prewarm code_mode_tool_description_first
    code_mode_tool_search codex_apps_mcp_2026_07_28 codex_git_commit codex_hooks collab
    collaboration_modes compaction_image_budget computer_use concurrent_reasoning_summaries
    connectors content_item_kinds context_management credential_masking critical_path_timing
    current_time_reminder cwd_relative_turn_diffs daemon_auto_start
    default_mode_request_user_input defer_mailbox_preemption deferred_executor
    deferred_tool_world_state elevated_windows_sandbox enable_experimental_windows_sandbox
    enable_fanout enable_mcp_apps enable_request_compression exec_permission_approvals
    executed_tool_call_metadata executor_capability_discovery executor_capability_discovery_v2
    experimental_use_unified_exec_tool experimental_windows_sandbox external_agent_memory_import
    external_migration fast_mode goals guardian_approval guardian_conversation_history_tools
    guardian_enhanced_node_repl_transcripts guardian_ext guardian_native_multi_agent_history
    guardian_node_repl_transcript_images guardian_recorded_items
    guardian_reuse_parent_compaction guardian_root_handoff_context
    guardian_trust_orchestrator_connectors guardianv2 guardianv2.thread_context
    guardianv2_decisions_comparison guardianv3 hooks image_detail_original image_generation
    image_resize_notice in_app_browser in_app_chat in_app_dictation in_app_local_automation
    in_app_updates in_app_voice incremental_tools instant_interrupt item_ids js_repl
    js_repl_tools_only local_thread_store_compression local_thread_store_shared_compression
    login_shell_package_path mcp_2026_07_28 mcp_connection_sharing
    mcp_oauth_refresh_coordination mcp_tool_list_changed memories memory_tool mentions_v2
    model_catalog_in_context multi_agent multi_agent_mode multi_agent_v2
    multi_agent_v2_dynamic_tools multi_env_copy_file network_proxy non_prefixed_mcp_tool_names
    nonfatal_clock_read_errors omit_app_server_notification_media omit_skill_descriptions
    output_token_replay personality plugin_discovery_prefetch plugin_hooks plugin_sharing
    plugins powershell_shell_version prediction_preserve_parent_tools prefer_mxc
    prevent_idle_sleep psp realtime_conversation reasoning_effort_override recommended_plugins
    remote_compaction_v2 remote_control remote_models remote_plugin request_permissions
    request_permissions_tool request_rule resize_all_images respect_system_proxy
    responses_websockets responses_websockets_v2 retain_client_developer_messages
    retain_client_tool_outputs rollout_budget runtime_agent_instances runtime_metrics
    search_tool secret_auth_storage send_async_message send_message_to_user_async shell_snapshot
    shell_snapshot_v2 shell_tool shell_zsh_fork simplified_selection_hints skill_catalog_deltas
    skill_env_var_dependency_prompt skill_mcp_dependency_install skill_search
    skip_host_skill_discovery sleep_tool sqlite stable_environment_tools standalone_web_search
    steer step_model_switching subagent_default_context_limits subagent_thread_environments
    system_proxy_fallback telepathy terminal_resize_reflow terminal_visualization_instructions
    token_budget tool_call_mcp_elicitation tool_search tool_search_always_defer_mcp_tools
    tool_suggest transcript_v2 tui_app_server tui_multi_backend ultrafast_mode
    unavailable_dummy_tools unbounded_connection_retries undo unified_exec unified_exec_tty
    unified_exec_zsh_fork unified_image_budget untrusted_as_tool_output use_agent_identity
    use_legacy_landlock use_linux_sandbox_bwrap use_xaa view_image wake_on_agent_messages
    web_search web_search_cached web_search_request windows_sandbox_service
    workspace_dependencies workspace_owner_usage_nudge worktrees write_stdin_approval
    """.split()
)

_FEATURE = frozenset({BOOLEAN, OPEN})
_PERMISSIONS = ("read-only", "workspace-write", "danger-full-access")

_MCP_SERVER: dict[str, Field] = {
    **dict.fromkeys(("command", "cwd", "url", "name", "environment_id"), STRING),
    **dict.fromkeys(("bearer_token", "bearer_token_env_var", "oauth_resource"), STRING),
    **dict.fromkeys(("args", "env_vars", "enabled_tools", "disabled_tools"), LIST),
    **dict.fromkeys(("scopes", "omit_tools_from"), LIST),
    **dict.fromkeys(("env", "http_headers", "env_http_headers", "tools", "oauth"), OPEN),
    **dict.fromkeys(("enabled", "required", "supports_parallel_tool_calls"), BOOLEAN),
    **dict.fromkeys(("startup_timeout_sec", "tool_timeout_sec"), frozenset({INTEGER, "float"})),
    "startup_timeout_ms": INTEGER,
    "default_tools_approval_mode": ("auto", "prompt", "writes", "approve"),
    "auth": ("oauth", "chatgpt", "ema_auth"),
}

_MODEL_PROVIDER: dict[str, Field] = {
    **dict.fromkeys(("name", "base_url", "env_key", "env_key_instructions"), STRING),
    "experimental_bearer_token": STRING,
    "wire_api": ("responses",),
    **dict.fromkeys(("auth", "aws", "query_params", "http_headers", "env_http_headers"), OPEN),
    **dict.fromkeys(("request_max_retries", "stream_max_retries"), INTEGER),
    **dict.fromkeys(("stream_idle_timeout_ms", "websocket_connect_timeout_ms"), INTEGER),
    **dict.fromkeys(("requires_openai_auth", "supports_websockets"), BOOLEAN),
}

_STRINGS = """
    model review_model model_provider instructions developer_instructions model_instructions_file
    compact_prompt mcp_oauth_callback_url js_repl_node_path sqlite_home log_dir
    default_permissions model_reasoning_effort plan_mode_reasoning_effort model_catalog_json
    service_tier chatgpt_base_url apps_mcp_product_sku openai_base_url
    experimental_realtime_ws_base_url experimental_realtime_webrtc_call_base_url
    experimental_realtime_ws_model experimental_realtime_ws_backend_prompt
    experimental_realtime_ws_startup_context experimental_realtime_start_instructions
    experimental_compact_prompt_file oss_provider
    """

_INTEGERS = """
    model_context_window model_auto_compact_token_limit mcp_oauth_callback_port
    project_doc_max_bytes tool_output_token_limit background_terminal_max_timeout
    """

_BOOLEANS = """
    allow_login_shell include_permissions_instructions include_apps_instructions
    include_collaboration_mode_instructions include_environment_context hide_agent_reasoning
    show_raw_agent_reasoning suppress_unstable_features_warning check_for_update_on_startup
    disable_paste_burst experimental_use_unified_exec_tool
    """

_LISTS = "notify project_doc_fallback_filenames js_repl_node_module_dirs project_root_markers"

_OPEN_TABLES = """
    auto_review permissions profiles tui audio realtime experimental_thread_store tools
    tool_suggest agents memories skills hooks plugins marketplaces ghost_snapshot apps desktop otel
    windows notice orchestrator goals computer_use browser_use cloud
    """

FIELDS: dict[str, Field] = {
    **dict.fromkeys(_STRINGS.split(), STRING),
    **dict.fromkeys(_INTEGERS.split(), INTEGER),
    **dict.fromkeys(_BOOLEANS.split(), BOOLEAN),
    **dict.fromkeys(_LISTS.split(), LIST),
    **dict.fromkeys(_OPEN_TABLES.split(), OPEN),
    "model_auto_compact_token_limit_scope": ("total", "body_after_prefix"),
    "profile": REMOVED,
    "experimental_thread_store_endpoint": REMOVED,
    "approval_policy": ("untrusted", "on-failure", "on-request", "granular", "never"),
    "approvals_reviewer": ("user", "auto_review", "guardian_subagent"),
    "sandbox_mode": _PERMISSIONS,
    "forced_chatgpt_workspace_id": frozenset({STRING, LIST}),
    "forced_login_method": ("chatgpt", "api"),
    "cli_auth_credentials_store": ("file", "keyring", "auto", "ephemeral"),
    "mcp_oauth_credentials_store": ("auto", "file", "keyring"),
    "file_opener": ("vscode", "vscode-insiders", "windsurf", "cursor", "none"),
    "model_reasoning_summary": ("auto", "concise", "detailed", "none"),
    "model_verbosity": ("low", "medium", "high"),
    "personality": ("none", "friendly", "pragmatic"),
    "web_search": ("disabled", "cached", "indexed", "live"),
    "sandbox_workspace_write": {
        "writable_roots": LIST,
        **dict.fromkeys(("network_access", "exclude_tmpdir_env_var"), BOOLEAN),
        "exclude_slash_tmp": BOOLEAN,
    },
    "shell_environment_policy": {
        "inherit": ("core", "all", "none"),
        "ignore_default_excludes": BOOLEAN,
        "exclude": LIST,
        "set": OPEN,
        "include_only": LIST,
        "experimental_use_profile": BOOLEAN,
    },
    "history": {"persistence": ("save-all", "none"), "max_bytes": INTEGER},
    "analytics": {"enabled": BOOLEAN},
    "feedback": {"enabled": BOOLEAN},
    "projects": {EACH: {"trust_level": ("trusted", "untrusted")}},
    "mcp_servers": {EACH: _MCP_SERVER},
    "model_providers": {EACH: _MODEL_PROVIDER},
    "features": dict.fromkeys(FEATURES, _FEATURE),
}
