// Queries: filters of every type, projections and pages.

import assert from "node:assert/strict";
import test from "node:test";

import { odata } from "@azure/data-tables";

import { collect, newTable, refused, rows } from "./clients.mjs";

const ID = "c9da6455-213d-42c9-9a79-3e9149a57833";

async function newKinds(t) {
    const table = await newTable(t);
    for (const row of [0, 1, 2]) {
        await table.createEntity({
            partitionKey: "p",
            rowKey: `${row}`,
            Int: row,
            Long: BigInt(row) * 2n ** 40n,
            Double: row + 0.5,
            Text: `it's ${row}`,
            Flag: row === 1,
            Moment: new Date(Date.UTC(2000 + row)),
            Id: { type: "Guid", value: row === 1 ? ID : "00000000-0000-0000-0000-000000000000" },
            Raw: new Uint8Array([row]),
        });
    }
    return table;
}

const FILTERS = [
    [odata`Int eq ${1}`, ["1"]],
    [odata`Int ge ${1} and Int lt ${2}`, ["1"]],
    [`Long ge ${2n ** 40n}L`, ["1", "2"]],
    [odata`Double gt ${0.75}`, ["1", "2"]],
    [odata`Text eq ${"it's 2"}`, ["2"]],
    [odata`Text ne ${"it's 2"}`, ["0", "1"]],
    [odata`Flag eq ${true}`, ["1"]],
    [odata`Moment gt ${new Date(Date.UTC(2000))}`, ["1", "2"]],
    [`Id eq guid'${ID}'`, ["1"]],
    ["Raw le X'01'", ["0", "1"]],
    ["not (Int eq 1)", ["0", "2"]],
    ["RowKey eq '0' or RowKey eq '2'", ["0", "2"]],
    [odata`PartitionKey eq ${"p"} and RowKey eq ${"1"}`, ["1"]],
    ["Nothing ne 1", []],
];

test("filters", async (t) => {
    const table = await newKinds(t);
    for (const [filter, expected] of FILTERS) {
        assert.deepEqual(await rows(table, { filter }), expected, filter);
    }
    await refused(rows(table, { filter: "Int is 5" }), 400, "InvalidInput");
    const sneaky = odata`Text eq ${"x' or Int ge 0 or Text eq 'x"}`;
    assert.deepEqual(await rows(table, { filter: sneaky }), []);
});

test("projections", async (t) => {
    const table = await newKinds(t);
    const select = ["rowKey", "Int"];
    const entities = await collect(table.listEntities({ queryOptions: { select } }));
    for (const [row, entity] of entities.entries()) {
        assert.equal(entity.Int, row);
        assert.equal(entity.Text, undefined);
    }
    const alone = await table.getEntity("p", "1", { queryOptions: { select: ["Raw"] } });
    assert.deepEqual(new Uint8Array(alone.Raw), new Uint8Array([1]));
    assert.equal(alone.Int, undefined);
});

test("pages", async (t) => {
    const table = await newTable(t);
    const everybody = Array.from({ length: 95 }, (_, number) => `${number}`.padStart(3, "0"));
    await table.submitTransaction(
        everybody.map((rowKey) => ["create", { partitionKey: "p", rowKey }]),
    );
    const sizes = [];
    let continuationToken;
    for await (const page of table.listEntities().byPage({ maxPageSize: 40 })) {
        sizes.push(page.length);
        continuationToken ??= page.continuationToken;
    }
    assert.deepEqual(sizes, [40, 40, 15]);
    const pages = table.listEntities().byPage({ maxPageSize: 40, continuationToken });
    const [again] = await collect(pages);
    assert.equal(again[0].rowKey, "040");
    assert.deepEqual(await rows(table), everybody);
});
