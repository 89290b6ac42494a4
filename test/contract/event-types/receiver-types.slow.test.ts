import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import path from "node:path";
import { afterAll, expect, test } from "vitest";
import { pythonOf } from "../../../src/contract/event-types/python.ts";
import { has, pythonFolder } from "../../clients/toolchains.ts";
import { deliveries, folder, removeFolder, secret, types } from "./receiver-deliveries.ts";

afterAll(removeFolder);

const hasPython = has("python3", "-m", "venv", "-h");

/** Prints the class of each event. */
const PROGRAM = `import json, sys
import types_of_service as service
given = json.load(open("deliveries.json"))
for each in given["deliveries"]:
    body = each["body"].encode()
    event = service.receive(given["secret"], each["headers"], body)
    assert event.id == each["id"], event
    back = json.loads(event.payload.model_dump_json(by_alias=True))
    assert back == json.loads(body), (back, body)
    print(type(event).__name__)
    try:
        service.receive(given["secret"], each["headers"], body + b" ")
        sys.exit("a changed body passed")
    except service.WebhookVerificationError:
        pass
`;

test.skipIf(!hasPython)(
  `types.py verifies and parses a delivery of each event type, with every digit of integers${hasPython ? "" : " (skipped: there is no python3 with venv)"}`,
  async () => {
    const files = {
      "types_of_service.py": pythonOf(types),
      "deliveries.json": JSON.stringify({ secret, deliveries }),
      "use.py": PROGRAM,
    };
    for (const [name, text] of Object.entries(files)) writeFileSync(path.join(folder, name), text);
    const python = path.join(await pythonFolder(), "python3");
    const printed = execFileSync(python, ["use.py"], { cwd: folder, encoding: "utf8" });
    expect(printed.trim().split("\n")).toEqual(types.map(({ name }) => `${name}Event`));
  },
);
