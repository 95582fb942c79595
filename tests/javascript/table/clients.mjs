// Table clients for the server under test.

import { AzureNamedKeyCredential, TableClient, TableServiceClient } from "@azure/data-tables";

import { collect, nextNumber } from "../harness.mjs";

export * from "../harness.mjs";

// No retries: a test must see every response.
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

/** Returns a table name: letters and digits only. */
export const unique = (prefix = "Table") => `${prefix}${process.pid}x${nextNumber()}`;

export const tableClient = (name, key = credential) => new TableClient(url, name, key, options);

/** Creates a table that is deleted after the test. */
export async function newTable(t) {
    const table = tableClient(unique());
    await table.createTable();
    t.after(() => table.deleteTable());
    return table;
}

export const rows = async (table, queryOptions) =>
    (await collect(table.listEntities({ queryOptions }))).map(({ rowKey }) => rowKey);
