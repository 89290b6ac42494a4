"""Prints an event as Python encodes it. Usage: encode.py SET JSON, both files."""

import base64
import json
import sys

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory


def message_class(packed):
    """The class of the message, whose lists of numbers are packed or not."""
    files = descriptor_pb2.FileDescriptorSet.FromString(open(sys.argv[1], "rb").read())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        for message in file.message_type if file.name == "invoice.proto" else []:
            for field in message.field:
                if field.label == field.LABEL_REPEATED and field.type not in (field.TYPE_MESSAGE, field.TYPE_STRING):
                    field.options.packed = packed
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("foreign.v1.ForeignInvoice"))


def in_parts(message):
    """One field after the other, the last one first: bytes that follow each other are one message."""
    parts = []
    for field, value in message.ListFields():
        part = type(message)()
        part.CopyFrom(message)
        for other, _ in message.ListFields():
            if other.name != field.name:
                part.ClearField(other.name)
        parts.append(part.SerializeToString())
    return b"".join(reversed(parts))


event = open(sys.argv[2]).read()
packed, unpacked = (json_format.Parse(event, message_class(each)()) for each in (True, False))
encoded = {
    "Python": packed.SerializeToString(),
    "Python, the last field first": in_parts(packed),
    "Python, lists of numbers not packed": unpacked.SerializeToString(),
    "Python, the last field first, lists of numbers not packed": in_parts(unpacked),
}
print(json.dumps({name: base64.b64encode(value).decode() for name, value in encoded.items()}))
