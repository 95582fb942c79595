from tests.recorded.cases import Catalogue
BLOB = Catalogue("blob")
NOT_COMPARED = {}
