from tests.recorded.cases import Catalogue
TABLE = Catalogue("table")
NOT_COMPARED = {}
