"""The faults that the kit has to find: each is one way in which a server may be wrong."""

from __future__ import annotations

import base64

from tests.conformance.planted import answers, fault, is_event, once, text_of, with_text


@fault(found_by="output.streams")
def a_byte_is_lost(message, request, memory):
    if is_event(message, "process/output") and len(text_of(message)) > 100 and once(memory):
        return [with_text(message, text_of(message)[:-1])]
    return None


@fault(found_by="output.binary")
def a_byte_is_changed(message, request, memory):
    if is_event(message, "process/output") and once(memory):
        data = text_of(message)
        return [with_text(message, bytes([data[0] ^ 1]) + data[1:])]
    return None


@fault(found_by="output.streams")
def an_event_is_lost(message, request, memory):
    return [] if is_event(message, "process/output") and once(memory) else None


@fault(found_by="output.numbers")
def an_event_comes_twice(message, request, memory):
    return [message, message] if is_event(message, "process/output") and once(memory) else None


@fault(found_by="output.numbers")
def the_exit_comes_twice(message, request, memory):
    return [message, message] if is_event(message, "process/exited") else None


@fault(found_by="output.numbers")
def a_number_is_used_twice(message, request, memory):
    if is_event(message, "process/exited"):
        message["params"]["seq"] -= 1
        return [message]
    return None


@fault(found_by="output.numbers")
def numbers_begin_at_zero(message, request, memory):
    if str(message.get("method", "")).startswith("process/"):
        message["params"]["seq"] -= 1
        return [message]
    return None


@fault(found_by="output.numbers")
def the_close_has_no_number(message, request, memory):
    if is_event(message, "process/closed"):
        del message["params"]["seq"]
        return [message]
    return None


@fault(found_by="output.numbers")
def the_close_never_comes(message, request, memory):
    return [] if is_event(message, "process/closed") else None


@fault(found_by="output.numbers")
def the_exit_never_comes(message, request, memory):
    return [] if is_event(message, "process/exited") else None


@fault(found_by="output.interleaved")
def numbers_are_of_the_connection(message, request, memory):
    if str(message.get("method", "")).startswith("process/"):
        memory["last"] = memory.get("last", 0) + 1
        message["params"]["seq"] = memory["last"]
        return [message]
    return None


@fault(found_by="output.interleaved")
def output_goes_to_another_process(message, request, memory):
    if is_event(message, "process/output"):
        first = memory.setdefault("first", message["params"]["processId"])
        message["params"]["processId"] = first
        return [message]
    return None


@fault(found_by="output.streams")
def streams_are_mixed_up(message, request, memory):
    if is_event(message, "process/output"):
        message["params"]["stream"] = "stdout"
        return [message]
    return None


@fault(found_by="output.binary")
def output_is_url_safe_base64(message, request, memory):
    if is_event(message, "process/output"):
        message["params"]["chunk"] = base64.urlsafe_b64encode(text_of(message)).decode()
        return [message]
    return None


@fault(found_by="exit.code")
def an_exit_code_is_wrong(message, request, memory):
    if is_event(message, "process/exited") and message["params"]["exitCode"] == 137:
        message["params"]["exitCode"] = 9
        return [message]
    return None


@fault(found_by="exit.code")
def an_exit_code_is_a_text(message, request, memory):
    if is_event(message, "process/exited"):
        message["params"]["exitCode"] = str(message["params"]["exitCode"])
        return [message]
    return None


@fault(found_by="exit.signal")
def a_signal_is_negative(message, request, memory):
    if is_event(message, "process/exited") and message["params"]["exitCode"] > 128:
        message["params"]["exitCode"] = 128 - message["params"]["exitCode"]
        return [message]
    return None


@fault(found_by="exit.not-denied")
def every_failure_is_a_denial(message, request, memory):
    if is_event(message, "process/exited"):
        message["params"]["sandboxDenied"] = message["params"]["exitCode"] != 0
        return [message]
    return None


@fault(found_by="exit.background")
def the_close_is_told_with_the_exit(message, request, memory):
    if answers("process/read", request) and message.get("result", {}).get("exited"):
        message["result"]["closed"] = True
        return [message]
    return None


@fault(found_by="exit.background")
def late_output_is_lost(message, request, memory):
    if is_event(message, "process/exited"):
        memory["exited"] = True
    return [] if is_event(message, "process/output") and memory.get("exited") else None


@fault(found_by="start.answer")
def the_answer_names_another_process(message, request, memory):
    if answers("process/start", request) and "result" in message:
        message["result"]["processId"] += "x"
        return [message]
    return None


@fault(found_by="start.answer")
def the_answer_lacks_the_sandbox(message, request, memory):
    if answers("process/start", request) and "result" in message:
        del message["result"]["sandboxType"]
        return [message]
    return None


def _other_code(message, code):
    message["error"]["code"] = code
    return [message]


@fault(found_by="start.empty-argv")
def wrong_parameters_are_internal_errors(message, request, memory):
    is_it = message.get("error", {}).get("code") == -32602
    return _other_code(message, -32603) if is_it else None


@fault(found_by="start.missing-program")
def a_missing_program_is_a_wrong_parameter(message, request, memory):
    is_it = message.get("error", {}).get("code") == -32603
    return _other_code(message, -32602) if is_it else None


@fault(found_by="start.duplicate")
def a_process_may_be_started_twice(message, request, memory):
    if answers("process/start", request) and "error" in message:
        return [{"id": message["id"], "result": {"processId": "x", "sandboxType": "none"}}]
    return None


@fault(found_by="envelope.unknown-method")
def an_unknown_method_is_a_wrong_request(message, request, memory):
    is_it = message.get("error", {}).get("code") == -32601
    return _other_code(message, -32600) if is_it else None


@fault(found_by="envelope.no-json")
def malformed_messages_have_the_standard_code(message, request, memory):
    return _other_code(message, -32700) if message.get("id") == -1 else None


@fault(found_by="envelope.no-json")
def malformed_messages_are_ignored(message, request, memory):
    return [] if message.get("id") == -1 else None


@fault(found_by="envelope.string-id")
def ids_become_texts(message, request, memory):
    if "id" in message and message["id"] != -1 and "method" not in message:
        message["id"] = str(message["id"])
        return [message]
    return None


@fault(found_by="envelope.extra-members")
def messages_have_a_version(message, request, memory):
    return [{"jsonrpc": "2.0", **message}]


@fault(found_by="envelope.no-data")
def errors_have_data(message, request, memory):
    if "error" in message:
        message["error"]["data"] = {"why": "secret"}
        return [message]
    return None


@fault(found_by="handshake.result")
def sessions_have_a_fixed_id(message, request, memory):
    if answers("initialize", request) and "result" in message:
        message["result"]["sessionId"] = "00000000-0000-4000-8000-000000000000"
        return [message]
    return None


@fault(found_by="handshake.result")
def session_ids_are_upper_case(message, request, memory):
    if answers("initialize", request) and "result" in message:
        message["result"]["sessionId"] = message["result"]["sessionId"].upper()
        return [message]
    return None


@fault(found_by="handshake.environment")
def facts_differ(message, request, memory):
    if answers("environment/info", request):
        message["result"]["tempDir"] = "file:///elsewhere"
        return [message]
    return None


@fault(found_by="handshake.environment")
def capabilities_are_texts(message, request, memory):
    if "result" in message and "capabilities" in str(message["result"]):
        facts = message["result"].get("environmentInfo", message["result"])
        facts["capabilities"] = {name: "yes" for name in facts["capabilities"]}
        return [message]
    return None


@fault(found_by="handshake.once")
def initialize_works_twice(message, request, memory):
    if answers("initialize", request) and "error" in message:
        return [{"id": message["id"], "result": {"sessionId": "x"}}]
    return None


@fault(found_by="order.requests")
def answers_change_places(message, request, memory):
    if answers("environment/status", request):
        memory.setdefault("held", []).append(message)
        if len(memory["held"]) == 20:
            return list(reversed(memory["held"]))
        return []
    return None


@fault(found_by="read.all")
def a_read_lacks_a_chunk(message, request, memory):
    if answers("process/read", request) and message.get("result", {}).get("chunks"):
        del message["result"]["chunks"][0]
        return [message]
    return None


@fault(found_by="read.cursor")
def the_cursor_includes_its_number(message, request, memory):
    if answers("process/read", request) and request["params"].get("afterSeq"):
        chunks = message["result"]["chunks"]
        if chunks:
            chunks.insert(0, {**chunks[0], "seq": request["params"]["afterSeq"]})
        return [message]
    return None


@fault(found_by="read.cursor")
def the_next_number_is_one_too_high(message, request, memory):
    if answers("process/read", request) and "result" in message:
        message["result"]["nextSeq"] += 1
        return [message]
    return None


@fault(found_by="read.unknown")
def an_unknown_process_has_no_output(message, request, memory):
    if answers("process/read", request) and "error" in message:
        empty = {"chunks": [], "nextSeq": 1, "exited": True, "exitCode": 0, "closed": True}
        return [{"id": message["id"], "result": empty}]
    return None


@fault(found_by="write.unknown")
def a_lost_write_is_accepted(message, request, memory):
    if answers("process/write", request) and "result" in message:
        message["result"]["status"] = "accepted"
        return [message]
    return None


@fault(found_by="write.base64")
def wrong_base64_is_accepted(message, request, memory):
    if answers("process/write", request) and "error" in message:
        return [{"id": message["id"], "result": {"status": "accepted"}}]
    return None


@fault(found_by="terminate.running")
def a_running_process_is_not_running(message, request, memory):
    if answers("process/terminate", request):
        message["result"]["running"] = not message["result"]["running"]
        return [message]
    return None


@fault(found_by="terminate.ended")
def an_ended_process_is_running(message, request, memory):
    if answers("process/terminate", request):
        message["result"]["running"] = True
        return [message]
    return None


@fault(found_by="terminal.output")
def a_terminal_has_two_streams(message, request, memory):
    if is_event(message, "process/output") and message["params"]["stream"] == "pty":
        message["params"]["stream"] = "stdout"
        return [message]
    return None


@fault(found_by="terminal.output")
def line_ends_of_a_terminal_are_short(message, request, memory):
    if is_event(message, "process/output"):
        return [with_text(message, text_of(message).replace(b"\r\n", b"\n"))]
    return None


@fault(found_by="session.attached")
def a_held_session_is_unknown(message, request, memory):
    is_it = message.get("error", {}).get("code") == -32010
    return _other_code(message, -32600) if is_it else None


@fault(found_by="session.unknown")
def an_unknown_session_is_made(message, request, memory):
    if answers("initialize", request) and "error" in message:
        return [{"id": message["id"], "result": {"sessionId": "x"}}]
    return None


@fault(found_by="fs.not-found")
def a_missing_file_is_an_internal_error(message, request, memory):
    is_it = message.get("error", {}).get("code") == -32004
    return _other_code(message, -32603) if is_it else None


@fault(found_by="fs.write-read")
def files_are_cut_at_64_kib(message, request, memory):
    if answers("fs/readFile", request) and "result" in message:
        data = base64.b64decode(message["result"]["dataBase64"])[:65536]
        message["result"]["dataBase64"] = base64.b64encode(data).decode()
        return [message]
    return None


@fault(found_by="fs.blocks")
def a_file_never_ends(message, request, memory):
    if answers("fs/readBlock", request) and "result" in message:
        message["result"]["eof"] = False
        return [message]
    return None


@fault(found_by="fs.directory")
def a_listing_lacks_an_entry(message, request, memory):
    if answers("fs/readDirectory", request) and "result" in message:
        message["result"]["entries"] = message["result"]["entries"][1:]
        return [message]
    return None


@fault(found_by="http.stream")
def a_piece_of_a_body_is_lost(message, request, memory):
    return [] if is_event(message, "http/request/bodyDelta") and once(memory) else None


@fault(found_by="http.status")
def an_http_error_is_an_error(message, request, memory):
    if answers("http/request", request) and message.get("result", {}).get("status") == 404:
        return [{"id": message["id"], "error": {"code": -32603, "message": "404"}}]
    return None
