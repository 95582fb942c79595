// Operations on the service: properties and statistics.

import assert from "node:assert/strict";
import test from "node:test";

import { TableServiceClient } from "@azure/data-tables";

import {
    account,
    credential,
    newTable,
    options,
    refused,
    rows,
    service,
    tableClient,
    url,
} from "./clients.mjs";

test("properties are stored", async (t) => {
    const before = await service.getProperties();
    t.after(() =>
        service.setProperties({
            logging: before.logging,
            hourMetrics: before.hourMetrics,
            minuteMetrics: before.minuteMetrics,
            cors: before.cors ?? [],
        }),
    );
    const retentionPolicy = { enabled: true, days: 7 };
    const expected = {
        logging: { version: "1.0", delete: true, read: false, write: true, retentionPolicy },
        hourMetrics: { version: "1.0", enabled: true, includeAPIs: true, retentionPolicy },
        minuteMetrics: { version: "1.0", enabled: true, includeAPIs: false, retentionPolicy },
        cors: [
            {
                allowedOrigins: "http://example.com,http://example.org",
                allowedMethods: "GET,POST",
                allowedHeaders: "x-ms-meta-*",
                exposedHeaders: "x-ms-*",
                maxAgeInSeconds: 200,
            },
        ],
    };
    await service.setProperties(expected);
    const properties = await service.getProperties();
    for (const [name, value] of Object.entries(expected)) assert.deepEqual(properties[name], value, name);

    const preflight = (origin, method) =>
        fetch(`${url}/Any()`, {
            method: "OPTIONS",
            headers: { Origin: origin, "Access-Control-Request-Method": method },
        });
    const allowed = await preflight("http://example.org", "POST");
    assert.equal(allowed.status, 200);
    assert.equal(allowed.headers.get("access-control-allow-origin"), "http://example.org");
    assert.equal((await preflight("http://example.org", "PUT")).status, 403);
    assert.equal((await preflight("http://example.net", "POST")).status, 403);
});

// The secondary endpoint

const secondaryUrl = url.replace(account, `${account}-secondary`);
const secondary = new TableServiceClient(secondaryUrl, credential, options);

test("the primary endpoint has no statistics", async () => {
    await refused(service.getStatistics(), 400, "InvalidQueryParameterValue");
});

test("statistics are available at the secondary endpoint", async () => {
    const { geoReplication } = await secondary.getStatistics();
    assert.equal(geoReplication.status, "live");
    assert.ok(Math.abs(geoReplication.lastSyncTime - Date.now()) < 60_000);
});

test("the secondary endpoint is read-only", async (t) => {
    const table = await newTable(t);
    await table.createEntity({ partitionKey: "p", rowKey: "r" });
    const other = tableClient(table.tableName);
    other.url = secondaryUrl;
    assert.deepEqual(await rows(other), ["r"]);
    const readOnly = "InsufficientAccountPermissions";
    await refused(secondary.createTable("Never"), 403, readOnly);
});
