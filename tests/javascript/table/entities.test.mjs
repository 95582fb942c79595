// Entities: property types, changes and ETags.

import assert from "node:assert/strict";
import test from "node:test";

import { newTable, refused, rows } from "./clients.mjs";

const ADA = { partitionKey: "Lovelace", rowKey: "Ada" };
const STALE = "W/\"datetime'2000-01-01T00%3A00%3A00.0000000Z'\"";

// The value that is sent, and the value that is returned if it differs.
const VALUES = {
    text: ["text"],
    "an empty text": [""],
    "odd text": ["O'Neil \u2028 é 🦄 \u0000\t\"\\"],
    "a small number": [36],
    "the smallest number": [-(2 ** 31)],
    "a fraction": [0.1],
    "a large number": [{ type: "Double", value: "1e+300" }, 1e300],
    // The SDK does not convert it.
    infinity: [{ type: "Double", value: "Infinity" }, "Infinity"],
    "the largest integer": [2n ** 63n - 1n],
    "the smallest integer": [-(2n ** 63n)],
    true: [true],
    false: [false],
    "a moment": [new Date("1815-12-10T00:00:00.123Z")],
    "the first moment": [new Date("1601-01-01T00:00:00Z")],
    "a GUID": [{ type: "Guid", value: "c9da6455-213d-42c9-9a79-3e9149a57833" }],
    bytes: [new Uint8Array([0, 1, 254, 255])],
};

for (const [name, [sent, expected = sent]] of Object.entries(VALUES)) {
    test(`a property that is ${name}`, async (t) => {
        const table = await newTable(t);
        await table.createEntity({ ...ADA, Value: sent });
        const { Value } = await table.getEntity("Lovelace", "Ada");
        assert.deepEqual(Value instanceof Uint8Array ? new Uint8Array(Value) : Value, expected);
        await table.upsertEntity({ ...ADA, Value: sent }, "Merge");
        for await (const entity of table.listEntities()) {
            const actual = entity.Value;
            assert.deepEqual(actual instanceof Uint8Array ? new Uint8Array(actual) : actual, expected);
        }
    });
}

test("changes", async (t) => {
    const table = await newTable(t);
    await refused(table.updateEntity({ ...ADA, A: 1 }, "Merge"), 404, "ResourceNotFound");
    await table.createEntity({ ...ADA, A: 1 });
    await refused(table.createEntity(ADA), 409, "EntityAlreadyExists");
    await table.updateEntity({ ...ADA, B: 2 }, "Merge");
    const merged = await table.getEntity("Lovelace", "Ada");
    assert.deepEqual([merged.A, merged.B], [1, 2]);
    await table.updateEntity({ ...ADA, C: 3 }, "Replace");
    const replaced = await table.getEntity("Lovelace", "Ada");
    assert.deepEqual([replaced.A, replaced.B, replaced.C], [undefined, undefined, 3]);
    await table.upsertEntity({ ...ADA, rowKey: "Byron" }, "Replace");
    await table.upsertEntity({ ...ADA, rowKey: "Byron", A: 1 }, "Merge");
    assert.deepEqual(await rows(table), ["Ada", "Byron"]);
    await table.deleteEntity("Lovelace", "Ada");
    await refused(table.deleteEntity("Lovelace", "Ada"), 404, "ResourceNotFound");
    await refused(table.getEntity("Lovelace", "Ada"), 404, "ResourceNotFound");
});

test("ETag conditions", async (t) => {
    const table = await newTable(t);
    const { etag } = await table.createEntity(ADA);
    assert.equal((await table.getEntity("Lovelace", "Ada")).etag, etag);
    const changed = { ...ADA, Age: 37 };
    const stale = "UpdateConditionNotSatisfied";
    for (const mode of ["Merge", "Replace"]) {
        await refused(table.updateEntity(changed, mode, { etag: STALE }), 412, stale);
    }
    await refused(table.deleteEntity("Lovelace", "Ada", { etag: STALE }), 412, stale);
    const updated = await table.updateEntity(changed, "Merge", { etag });
    assert.notEqual(updated.etag, etag);
    await refused(table.deleteEntity("Lovelace", "Ada", { etag }), 412, stale);
    await table.deleteEntity("Lovelace", "Ada", { etag: updated.etag });
});

test("no concurrent increment is lost", async (t) => {
    const table = await newTable(t);
    await table.createEntity({ ...ADA, Count: 0 });
    async function increment() {
        for (let done = 0; done < 5; ) {
            const entity = await table.getEntity("Lovelace", "Ada");
            const next = { ...ADA, Count: entity.Count + 1 };
            try {
                await table.updateEntity(next, "Merge", { etag: entity.etag });
                done += 1;
            } catch (error) {
                assert.equal(error.statusCode, 412);
            }
        }
    }
    await Promise.all(Array.from({ length: 6 }, increment));
    assert.equal((await table.getEntity("Lovelace", "Ada")).Count, 30);
});

for (const key of ["", " ", "O'Neil", "100%", "a b&c=d", "é", "🦄", "x".repeat(1024)]) {
    test(`the key ${JSON.stringify(key.slice(0, 10))}`, async (t) => {
        const table = await newTable(t);
        const keys = { partitionKey: key, rowKey: key };
        await table.createEntity({ ...keys, Age: 36 });
        assert.equal((await table.getEntity(key, key)).Age, 36);
        await table.updateEntity({ ...keys, Age: 37 }, "Merge");
        await table.submitTransaction([["update", { ...keys, More: true }, "Merge"]]);
        const { Age, More } = await table.getEntity(key, key);
        assert.deepEqual([Age, More], [37, true]);
        await table.deleteEntity(key, key);
        assert.deepEqual(await rows(table), []);
    });
}

test("invalid entities", async (t) => {
    const table = await newTable(t);
    const create = (more) => table.createEntity({ ...ADA, ...more });
    await refused(create({ rowKey: "a/b" }), 400, "OutOfRangeInput");
    await refused(create({ rowKey: "x".repeat(1025) }), 400, "KeyValueTooLarge");
    await refused(create({ "a b": 1 }), 400, "PropertyNameInvalid");
    await refused(create({ A: "x".repeat(32769) }), 400, "PropertyValueTooLarge");
    const many = Object.fromEntries(Array.from({ length: 253 }, (_, at) => [`P${at}`, at]));
    await refused(create(many), 400, "TooManyProperties");
    assert.deepEqual(await rows(table), []);
});
