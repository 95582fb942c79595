// Tables: creation, listing, access policies and deletion.

import assert from "node:assert/strict";
import test from "node:test";

import { odata } from "@azure/data-tables";

import {
    collect,
    fromNow,
    HOUR_MS,
    newTable,
    refused,
    rows,
    service,
    tableClient,
    unique,
} from "./clients.mjs";

test("creating a table twice", async (t) => {
    const table = await newTable(t);
    // The SDK ignores the error if the table exists.
    await table.createTable();
    const query = { queryOptions: { filter: odata`TableName eq ${table.tableName}` } };
    assert.deepEqual(
        (await collect(service.listTables(query))).map(({ name }) => name),
        [table.tableName],
    );
});

test("a recreated table is empty", async (t) => {
    const table = await newTable(t);
    for (let number = 0; number < 3; number += 1) {
        await table.createEntity({ partitionKey: "p", rowKey: `${number}` });
        await table.deleteTable();
        await refused(rows(table), 404, "TableNotFound");
        await table.createTable();
        assert.deepEqual(await rows(table), []);
    }
});

test("paged lists", async (t) => {
    const prefix = unique("Listed");
    const names = ["a", "B", "c"].map((letter) => `${prefix}${letter}`);
    for (const name of names) await service.createTable(name);
    t.after(() => Promise.all(names.map((name) => service.deleteTable(name))));
    const filter = odata`TableName ge ${prefix} and TableName lt ${`${prefix}zz`}`;
    const pages = service.listTables({ queryOptions: { filter } }).byPage({ maxPageSize: 2 });
    const sizes = (await collect(pages)).map((page) => page.map(({ name }) => name));
    assert.deepEqual(sizes, [names.slice(0, 2), names.slice(2)]);
});

test("missing tables", async () => {
    const table = tableClient(unique("Missing"));
    const entity = { partitionKey: "p", rowKey: "r" };
    await refused(rows(table), 404, "TableNotFound");
    await refused(table.getEntity("p", "r"), 404, "TableNotFound");
    await refused(table.createEntity(entity), 404, "TableNotFound");
    await refused(table.upsertEntity(entity), 404, "TableNotFound");
    await refused(table.submitTransaction([["create", entity]]), 404, "TableNotFound");
    await refused(table.getAccessPolicy(), 404, "ResourceNotFound");
});

test("access policies are stored", async (t) => {
    const table = await newTable(t);
    const [start, expiry] = [fromNow(-HOUR_MS), fromNow(HOUR_MS)];
    const accessPolicy = { start, expiry, permission: "r" };
    await table.setAccessPolicy([{ id: "guests", accessPolicy }]);
    const policies = await table.getAccessPolicy();
    assert.equal(policies.length, 1);
    assert.equal(policies[0].id, "guests");
    assert.equal(policies[0].accessPolicy.permission, "r");
    await table.setAccessPolicy([]);
    assert.equal((await table.getAccessPolicy()).length, 0);
});
