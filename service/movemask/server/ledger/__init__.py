"""After the reply: the recorder writes what was answered to the ledger, a database; the reader reads its figures."""
