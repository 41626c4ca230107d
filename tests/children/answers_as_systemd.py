"""A user's service manager on the bus of DBUS_SESSION_BUS_ADDRESS: `python ... HOW GROUPS`.

It answers one request for a scope. HOW is "moves", which writes the new group into the file GROUPS;
"stays", which says that it is done and moves nothing; "fails", "refuses" or "silent". It says
`ready`, and then the request that it got.
"""

import json
import sys

from jeepney import DBusAddress, HeaderFields, MessageType, new_error, new_method_return, new_signal
from jeepney.bus_messages import message_bus
from jeepney.io.blocking import open_dbus_connection

PATH, INTERFACE = "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager"
how, groups = sys.argv[1:]
with open_dbus_connection("SESSION") as bus:
    bus.send_and_get_reply(message_bus.RequestName("org.freedesktop.systemd1"))
    print("ready", flush=True)
    while True:
        call = bus.receive()
        if call.header.message_type is not MessageType.method_call:
            continue
        name, mode, properties, _ = call.body
        said = {"name": name, "mode": mode, **{key: value for key, (_, value) in properties}}
        said["member"] = call.header.fields[HeaderFields.member]
        print(json.dumps(said), flush=True)
        if how == "silent":
            continue
        if how == "refuses":
            bus.send(new_error(call, "org.freedesktop.DBus.Error.AccessDenied", "s", ("no",)))
            continue
        bus.send(new_method_return(call, "o", (f"{PATH}/job/7",)))
        if how == "moves":
            with open(groups, "w") as file:
                file.write(f"0::/user.slice/user@5.service/app.slice/{name}\n")
        emitter = DBusAddress(PATH, interface=INTERFACE)
        result = "failed" if how == "fails" else "done"
        for number in (6, 7):
            job = (number, f"{PATH}/job/{number}", name, result)
            bus.send(new_signal(emitter, "JobRemoved", "uoss", job))
