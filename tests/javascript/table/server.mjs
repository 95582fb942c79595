// Clients for the server that the tests are given, and what they say again and again.

import assert from "node:assert/strict";

import { AzureNamedKeyCredential, TableClient, TableServiceClient } from "@azure/data-tables";

export const HOUR_MS = 60 * 60 * 1000;

// Without retries: every answer counts.
export const options = { allowInsecureConnection: true, retryOptions: { maxRetries: 0 } };

const settings = Object.fromEntries(
    process.env.AZURE_STORAGE_CONNECTION_STRING.split(";").map((pair) => {
        const at = pair.indexOf("=");
        return [pair.slice(0, at), pair.slice(at + 1)];
    }),
);

export const account = settings.AccountName;
export const url = settings.TableEndpoint;
export const credential = new AzureNamedKeyCredential(account, settings.AccountKey);
export const service = new TableServiceClient(url, credential, options);

let number = 0;

/** Letters and digits only, as in the names of tables. */
export function unique(prefix = "Table") {
    number += 1;
    return `${prefix}${process.pid}x${number}`;
}

export const tableClient = (name, key = credential) => new TableClient(url, name, key, options);

/** A table that ends with its test. */
export async function newTable(t) {
    const table = tableClient(unique());
    await table.createTable();
    t.after(() => table.deleteTable());
    return table;
}

/** The error of a request that is refused with just this. */
export async function refused(request, statusCode, code) {
    const error = await request.then(
        () => assert.fail(`it was not refused with ${statusCode} ${code}`),
        (reason) => reason,
    );
    assert.equal(error.name, "RestError", error);
    const told = error.details?.odataError?.code ?? error.code ?? error.details?.errorCode;
    assert.deepEqual({ statusCode: error.statusCode, code: told }, { statusCode, code }, error);
    return error;
}

export async function collect(items) {
    const found = [];
    for await (const item of items) found.push(item);
    return found;
}

export const rows = async (table, queryOptions) =>
    (await collect(table.listEntities({ queryOptions }))).map(({ rowKey }) => rowKey);

/** A moment some milliseconds from now. */
export const fromNow = (milliseconds) => new Date(Date.now() + milliseconds);
