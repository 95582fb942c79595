"""A photo album in Azure Storage: photos are blobs, an index is a table, thumbnails are made by
consumers of a queue, and exports are files in a share."""
